package inspect

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/judge"
	"github.com/pooldriver/pooldriver/pool"
)

// watched is a Connector that viewers look at.
type watched struct {
	connector *pooldriver.Connector
	dbs       []*sql.DB // the *sql.DBs of AddDB

	mu    sync.Mutex // protects following fields, and orders the looks
	asked Asked
	at    time.Time // when asked was made
}

const (
	// fewest is the least number of statements for a WaitP99. The first statement waits for a dial.
	fewest = 20
	// askFor bounds a question to the server. askAgain is the least time between two questions, and
	// askLater is this time if the last question got no answer.
	askFor   = time.Second
	askAgain = 900 * time.Millisecond
	askLater = 5 * time.Second
)

// Window has the figures of the last ten seconds, from Connector.History.
type Window struct {
	Known time.Duration // how far back the history goes, ten seconds at most
	// Failed counts the statements that got no connection, by reason; DialErrors counts failed dials.
	Failed     map[pooldriver.AcquireFailure]uint64
	DialErrors uint64
	// One statement of 100 has waited longer than WaitP99 for a connection; 0: there were fewer than
	// 20 statements.
	WaitP99 time.Duration
	// MeanHold is for how long connections were held on average; 0: too few came back.
	MeanHold time.Duration
	// Silent is for how long the pool is in use, and no checkout has ended without the loss of its connection, and no
	// dial has succeeded.
	Silent time.Duration
	// Ended checkouts had their connections for Held, and ran no statement for IdlePinned. Lost is how many
	// connections were lost while they were used, or ended because their statement's context had ended.
	Ended, Lost      uint64
	Held, IdlePinned time.Duration
	Errors           map[string]uint64                 // of statements, by class of SQLSTATE
	Reads            map[pooldriver.ReplicaRead]uint64 // of replicas, by what has become of them
	Dropped          uint64                            // notifications
	// Late is the second longest of the times by which the seconds of the History were late: the process got no processor.
	Late time.Duration
}

// Asked is the server's answer about statements that run for long: see Connector.LockWaits.
type Asked struct {
	Asked    bool // the pool had a connection to spare; otherwise the rest is empty
	Answered bool // the server has answered, within Took
	Took     time.Duration
	Hidden   bool // the server shows some locks only to more privileged users
	Locks    []pooldriver.LockWait
}

// Earlier is a verdict that was worse than the present one.
type Earlier struct {
	Verdict
	Ago time.Duration
}

// Look looks at a Connector as the page does, but does not ask the server. dbs are those that use the Connector: see AddDB.
func Look(c *pooldriver.Connector, dbs ...*sql.DB) Pool {
	p := poolOf(c, dbs)
	p.Verdict, p.Besides = judged(p, memoryOf(c, false))
	return p
}

func init() {
	judge.Judge = func(connector any) (all []judge.Verdict) {
		p := Look(connector.(*pooldriver.Connector))
		for _, v := range append([]Verdict{p.Verdict}, p.Besides...) {
			all = append(all, judge.Verdict{Rule: v.Rule, Text: v.String(), Level: rank(v.Level) - rank(calm)})
		}
		return all
	}
}

func (w *watched) look() Pool {
	p := poolOf(w.connector, w.dbs)
	w.mu.Lock()
	defer w.mu.Unlock()
	p.Asked = w.askLocked(p)
	m := memoryOf(w.connector, true)
	p.Verdict, p.Besides = judged(p, m)
	p.Earlier = m.earlier(p.At, p.Verdict)
	return p
}

// poolOf is Look without a verdict.
func poolOf(c *pooldriver.Connector, dbs []*sql.DB) Pool {
	p := Pool{
		Name:         c.Target(),
		Settings:     slices.DeleteFunc(c.Settings(), func(s pooldriver.Setting) bool { return s.Value == s.Default }),
		Stats:        c.Stats(),
		Tasks:        atMost(maxRows, c.Tasks()),
		CallSites:    atMost(maxRows, c.CallSites()),
		BufferedRows: atMost(maxRows, c.BufferedRows()),
		Holders:      c.Holders(),
	}
	if n := len(p.Holders) - 1; n >= 0 && p.Holders[n].Pin == pooldriver.PinListen {
		p.Listens, p.Holders = &p.Holders[n], p.Holders[:n:n]
	}
	p.Holders, p.ReplicaHolders = parted(p.Holders, func(h pooldriver.Holder) bool { return h.Replica })
	p.Waiters, p.ReplicaWaiters = parted(c.Waiters(), func(w pooldriver.Waiter) bool { return w.Replica != "" })
	now := time.Now() // the times of holders are of this moment
	p.At = now
	for _, db := range dbs {
		p.DBs = append(p.DBs, dbOf(db.Stats()))
	}
	p.Labels = labelsOf(p)
	p.Statements = atMost(maxRows, c.Statements(now.Add(-window)))
	if moments := c.History(); len(moments) > 0 {
		present := waitsNow(p)
		p.Window, p.Recent, p.Lines = windowOf(moments, present), recentOf(moments, present), linesOf(moments)
	}
	return p
}

// parted returns the first entries of list that are not of replicas, and those that are.
func parted[T any](list []T, ofReplica func(T) bool) (others, replicas []T) {
	for _, one := range list {
		if ofReplica(one) {
			replicas = append(replicas, one)
		} else {
			others = append(others, one)
		}
	}
	return atMost(maxRows, others), atMost(maxRows, replicas)
}

// askLocked asks the server if statements run for long.
func (w *watched) askLocked(p Pool) Asked {
	if !slices.ContainsFunc(p.Holders, func(h pooldriver.Holder) bool { return h.RunningFor >= long && h.Pin != pooldriver.PinRaw }) {
		w.asked = Asked{}
		return w.asked
	}
	pause := askAgain
	if w.asked.Asked && !w.asked.Answered {
		pause = askLater
	}
	if p.At.Sub(w.at) < pause {
		return w.asked
	}
	ctx, cancel := context.WithTimeout(context.Background(), askFor)
	defer cancel()
	locks, err := w.connector.LockWaits(ctx)
	hidden := errors.Is(err, pooldriver.ErrLocksHidden)
	none := errors.Is(err, pool.ErrNoneNow)
	if none && p.At.Sub(w.at) < still {
		return w.asked // for a moment no connection is to spare
	}
	w.at = time.Now()
	w.asked = Asked{}
	if !none {
		w.asked = Asked{Asked: true, Answered: err == nil || hidden, Took: w.at.Sub(p.At), Hidden: hidden, Locks: locks}
	}
	return w.asked
}

// windowOf compares the present, which is the last moment, with the last moment that is at least ten
// seconds old. present are the waits that have not ended yet.
func windowOf(moments []pooldriver.Moment, present pooldriver.Histogram) Window {
	now := moments[len(moments)-1]
	first := 0
	for i, m := range moments {
		if now.At.Sub(m.At) >= window {
			first = i
		}
	}
	before := moments[first]
	w := Window{
		Known:      min(window, now.At.Sub(moments[0].At)),
		Failed:     grown(now.AcquireFailures, before.AcquireFailures),
		DialErrors: now.DialErrors - before.DialErrors,
		MeanHold:   meanHold(moments[first:]),
		Silent:     silent(moments),
		Ended:      now.Ended - before.Ended,
		Lost:       now.Lost - before.Lost,
		Held:       now.Held - before.Held,
		IdlePinned: now.IdlePinned - before.IdlePinned,
		Errors:     grown(now.StatementErrors, before.StatementErrors),
		Reads:      grown(now.Reads, before.Reads),
		Dropped:    now.Dropped - before.Dropped,
		Late:       secondLate(moments[first+1:]),
	}
	if wait := plus(minus(now.Wait, before.Wait), present); wait.Count >= fewest {
		w.WaitP99, _ = quantile(wait, 0.99)
	}
	return w
}

// grown has what the counters have counted from before until now.
func grown[K comparable](now, before map[K]uint64) map[K]uint64 {
	all := map[K]uint64{}
	for why, n := range now {
		if n > before[why] {
			all[why] = n - before[why]
		}
	}
	return all
}

// secondLate is Window.Late.
func secondLate(moments []pooldriver.Moment) (second time.Duration) {
	longest := time.Duration(0)
	for _, m := range moments {
		second = max(second, min(longest, m.Late))
		longest = max(longest, m.Late)
	}
	return second
}

// silent is Window.Silent.
func silent(moments []pooldriver.Moment) time.Duration {
	good := func(m *pooldriver.Moment) uint64 {
		return m.Ended - min(m.Ended, m.Lost) + m.Dials - min(m.Dials, m.DialErrors)
	}
	last := len(moments) - 1
	for i := last; i > 0; i-- {
		m := &moments[i]
		if good(m) > good(&moments[i-1]) || m.InUse == 0 && m.Waiting == 0 {
			return moments[last].At.Sub(m.At)
		}
	}
	return moments[last].At.Sub(moments[0].At)
}

// meanHold uses Little's law: the sum of connections in use times time, divided by the number of
// connections that came back. Lending a connection is one move, and its return is another.
func meanHold(moments []pooldriver.Moment) time.Duration {
	last := len(moments) - 1
	returned := (moments[last].Moves - moments[0].Moves) / 2
	if returned == 0 {
		return 0
	}
	var held time.Duration
	for i, m := range moments[1:] {
		held += min(m.At.Sub(moments[i].At), 2*time.Second) * time.Duration(m.InUse)
	}
	return held / time.Duration(returned)
}

// recentOf compares the present with the beginning of the last minute. present are the waits that have not
// ended yet.
func recentOf(moments []pooldriver.Moment, present pooldriver.Histogram) Recent {
	now, before := moments[len(moments)-1], moments[0]
	r, wait := Recent{Pipelined: now.Pipelined}, now.Wait
	if len(moments) > 1 {
		r.For = min(time.Minute, now.At.Sub(before.At))
		wait = minus(wait, before.Wait)
		r.Pipelined -= min(r.Pipelined, before.Pipelined)
		r.Failed = grown(now.AcquireFailures, before.AcquireFailures)
	}
	for _, p := range linesOf(moments) {
		if p.Failed > 0 {
			r.FailedAgo = now.At.Sub(p.At)
		}
	}
	r.Acquired = wait.Count
	wait = plus(wait, present)
	r.WaitP50, _ = quantile(wait, 0.5)
	r.WaitP99, r.Over = quantile(wait, 0.99)
	return r
}

// waitsNow has the waits that have not ended yet.
func waitsNow(p Pool) (h pooldriver.Histogram) {
	bounds := pooldriver.HistogramBounds()
	for _, w := range p.Waiters {
		if w.Follows {
			continue
		}
		i, _ := slices.BinarySearch(bounds, p.At.Sub(w.Since))
		h.Buckets[i]++
		h.Count++
	}
	return h
}

// plus adds two histograms.
func plus(a, b pooldriver.Histogram) pooldriver.Histogram {
	a.Count += b.Count
	for i := range a.Buckets {
		a.Buckets[i] += b.Buckets[i]
	}
	return a
}

// linesOf has a point for each moment.
func linesOf(moments []pooldriver.Moment) []Point {
	points := make([]Point, 0, len(moments))
	for i, m := range moments {
		p := Point{At: m.At, InUse: m.InUse, Waiting: m.Waiting}
		if i > 0 {
			before := moments[i-1]
			p.WaitP99, _ = quantile(minus(m.Wait, before.Wait), 0.99)
			for _, why := range refusals {
				p.Failed += m.AcquireFailures[why] - before.AcquireFailures[why]
			}
		}
		points = append(points, p)
	}
	return points
}

// minus returns what the histogram has counted from before until now. A counter may be read a little
// late, so no difference is below 0.
func minus(now, before pooldriver.Histogram) pooldriver.Histogram {
	now.Count -= min(now.Count, before.Count)
	now.Sum -= min(now.Sum, before.Sum)
	for i := range now.Buckets {
		now.Buckets[i] -= min(now.Buckets[i], before.Buckets[i])
	}
	return now
}

// quantile returns the upper bound of the bucket in which the q-th part of the count is reached.
// over: this is the last bucket, which has no bound; then bound is the largest bound.
func quantile(h pooldriver.Histogram, q float64) (bound time.Duration, over bool) {
	var all uint64
	for _, n := range h.Buckets {
		all += n
	}
	if all == 0 {
		return 0, false
	}
	bounds := pooldriver.HistogramBounds()
	var below uint64
	for i, n := range h.Buckets {
		below += n
		if float64(below) >= q*float64(all) {
			if i < len(bounds) {
				return bounds[i], false
			}
			break
		}
	}
	return bounds[len(bounds)-1], true
}
