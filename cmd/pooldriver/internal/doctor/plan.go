package doctor

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver"
)

// Plan is how the program uses the server.
type Plan struct {
	MaxConns        int
	MaxIdle, Period time.Duration // pool_max_conn_idle_time, pool_health_check_period; 0: for ever, never
	Replicas, Surge int
	settings        map[string]string // of the pool, by name
	params          map[string]string // of the driver
}

// NewPlan makes the plan of a Connector. replicas is how many processes have such a Connector, and
// surge how many more of them there are during a rollout: a number, or a percentage of replicas that is
// rounded up, as Kubernetes does.
func NewPlan(c *pooldriver.Connector, replicas int, surge string) (Plan, error) {
	p := Plan{Replicas: replicas, settings: map[string]string{}, params: map[string]string{}}
	if replicas < 1 {
		return p, fmt.Errorf("--replicas: %d is too small; the least is 1", replicas)
	}
	digits, percent := strings.CutSuffix(surge, "%")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 0 {
		return p, fmt.Errorf("--surge: %q is no number of processes and no percentage, such as 1 or 25%%", surge)
	}
	if p.Surge = n; percent {
		p.Surge = (replicas*n + 99) / 100
	}
	for _, param := range c.DriverParams() {
		p.params[param.Name] = param.Value
	}
	for _, s := range c.Settings() {
		p.settings[s.Name] = s.Value
	}
	p.MaxConns, _ = strconv.Atoi(p.settings["pool_max_conns"]) // the library has checked what it prints
	p.MaxIdle, p.Period = p.setting("pool_max_conn_idle_time"), p.setting("pool_health_check_period")
	return p, nil
}

// setting is a setting that is a time.
func (p *Plan) setting(name string) time.Duration {
	d, _ := time.ParseDuration(p.settings[name])
	return d
}

// Settings adds the settings that have no effect.
func (r *Report) Settings(settings []pooldriver.Setting) {
	for _, s := range settings {
		if s.Idle != "" {
			r.Add(Finding{Level: Note, Check: s.Name, Found: s.Name + "=" + s.Value + " has no effect: " + s.Idle})
		}
	}
}

// processes is the most processes at a time.
func (p *Plan) processes() int { return p.Replicas + p.Surge }

// Need is the most connections at a time.
func (p *Plan) Need() int { return p.MaxConns * p.processes() }

// Product says how Need comes about.
func (p *Plan) Product() string {
	if p.processes() == 1 {
		return fmt.Sprintf("pool_max_conns=%d", p.MaxConns)
	}
	if p.Surge == 0 {
		return fmt.Sprintf("pool_max_conns=%d × %d replicas = %d", p.MaxConns, p.Replicas, p.Need())
	}
	return fmt.Sprintf("pool_max_conns=%d × (%s + %d of a rollout) = %d", p.MaxConns, counted(p.Replicas, "replica"), p.Surge, p.Need())
}
