package report

import (
	"sync"
	"time"
)

// logEvery is the least time between two warnings.
const logEvery = 10 * time.Second

// Dials counts the dials of one server. The zero value has seen none. A Dials is safe for
// concurrent use.
type Dials struct {
	mu     sync.Mutex // protects following fields
	failed int        // dials that failed in a row; 0: no outage is known
	since  time.Time
	last   time.Time // when the last dial failed
	err    error     // the error of the last dial
	told   bool      // the log was told of this outage
	warned time.Time // the last warning, also that of an earlier outage
}

// DialsLook is what a log says of an outage.
type DialsLook struct {
	Failed int           // dials since the outage began
	For    time.Duration // the time since the first dial that failed
	Tell   bool          // the log is to be told now
}

// Count counts a dial that ended at now, with err. When a dial succeeds, the result describes the
// outage that is over. The log may call the program, so the caller writes to it under no lock.
func (d *Dials) Count(err error, now time.Time) DialsLook {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		r := d.reportLocked(now, d.told)
		d.failed, d.told, d.err = 0, false, nil
		return r
	}
	if d.failed++; d.failed == 1 {
		d.since = now
	}
	d.last, d.err = now, err
	tell := d.warned.IsZero() || now.Sub(d.warned) >= logEvery
	if tell {
		d.told, d.warned = true, now
	}
	return d.reportLocked(now, tell)
}

// Failing describes, at the time now, the dials that have failed since the last success: how many
// failed, for how long, how long ago the last one failed, and its error. If failed is 0, the last
// dial has succeeded, or there was none.
func (d *Dials) Failing(now time.Time) (failed int, lasts, ago time.Duration, last error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed == 0 {
		return 0, 0, 0, nil
	}
	return d.failed, now.Sub(d.since), now.Sub(d.last), d.err
}

func (d *Dials) reportLocked(now time.Time, tell bool) DialsLook {
	return DialsLook{Failed: d.failed, For: now.Sub(d.since), Tell: tell}
}
