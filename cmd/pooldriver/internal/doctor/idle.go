package doctor

import (
	"fmt"
	"time"

	"github.com/pooldriver/pooldriver/inspect"
)

// idleTimeout judges a time after which somebody closes idle connections. after 0: never.
func (p *Plan) idleTimeout(check, name string, after time.Duration) Finding {
	ours := "pool_max_conn_idle_time is " + inspect.Brief(p.MaxIdle)
	if p.MaxIdle == 0 {
		ours = "the pool keeps idle connections for ever (pool_max_conn_idle_time=0)"
	}
	f := Finding{Level: OK, Check: check, Found: fmt.Sprintf("%s is %s, and %s", name, inspect.Brief(after), ours)}
	if after == 0 {
		f.Found = name + " is off: no idle connection is closed from there"
		return f
	}
	if p.MaxIdle > 0 && p.MaxIdle+p.Period < after {
		return f
	}
	f.Level = Warn
	f.Follows = "idle connections are closed from there before the pool closes them: the next statement finds its connection dead and waits for a new one"
	f.Type = "pool_max_conn_idle_time=" + (after / 2).String()
	if p.Period >= after/2 {
		f.Type += "&pool_health_check_period=" + (after / 4).String() // it also ends what is idle for too long
	}
	return f
}
