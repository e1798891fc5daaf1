package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// The contest of the queue: a crowd waits for a few connections, one statement
// each, on a driver that takes a while for it. In a fair queue nobody waits
// longer than those before him need.

const (
	queueLength = 10_000
	queueConns  = 4
	queueHold   = 100 * time.Microsecond
)

var (
	overtaken = metric{unit: "overtaken", title: "overtaken", format: whole}
	fairWait  = metric{unit: "p99-wait", title: "p99 of wait ÷ fair wait", spread: true, format: times}
	waitAhead = metric{unit: "p99-wait-ahead", title: "by the holds ahead", format: times}
	meanHold  = metric{unit: "hold-ns", title: "mean hold", format: nanos}
)

func queueContests() []contest {
	return []contest{{
		section: sectionTasks,
		name:    fmt.Sprintf("%d tasks wait for %d connections", queueLength, queueConns),
		contenders: []contender{
			{"plain sql.DB", func(b *testing.B) {
				l := new(line)
				db := sql.OpenDB(l)
				db.SetMaxOpenConns(queueConns)
				db.SetMaxIdleConns(queueConns)
				l.measure(b, db, context.WithCancel, func() int { return int(db.Stats().WaitCount) })
			}},
			{"pooldriver", func(b *testing.B) {
				l := new(line)
				c := pooldriver.Wrap(l, func(c *pooldriver.Config) { c.MaxConns = queueConns })
				db := sql.OpenDB(c)
				db.SetMaxIdleConns(1000)
				l.measure(b, db, withTask, func() int { return c.Stats().Pool.Waiting })
			}},
		},
		own:      []metric{overtaken, fairWait, waitAhead, meanHold},
		promises: []promise{within(overtaken, 0), within(fairWait, 1.1)},
	}}
}

// line is a queue, as the driver sees it. It is the driver's connector, too.
type line struct {
	fakedb.NullConnector
	base  time.Time
	began time.Duration // everything is held until then
	turns []turn        // by the place in the queue
}

// turn is when, since the base, a connection was given back, the one who stood
// in this place came to the driver with it, and left.
type turn struct{ freed, entered, left time.Duration }

// measure lets the crowd line up, one after another, behind connections that
// are all held; then those are given back.
func (l *line) measure(b *testing.B, db *sql.DB, begin begin, waiting func() int) {
	defer db.Close()
	// Those who hold a connection keep a processor, in the system call.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(queueConns + runtime.GOMAXPROCS(0)))
	l.base, l.turns = time.Now(), make([]turn, queueLength)
	var held []*sql.Conn
	for range queueConns {
		c, err := db.Conn(b.Context())
		if err != nil {
			fail(b, err)
		}
		if err := c.PingContext(b.Context()); err != nil {
			fail(b, err)
		}
		held = append(held, c)
	}
	var done sync.WaitGroup
	for place := range l.turns {
		done.Go(func() {
			ctx, end := begin(context.Background())
			defer end()
			if _, err := db.ExecContext(ctx, nullInsert, int64(place), "three"); err != nil {
				note(b, err)
			}
		})
		for waiting() <= place && !b.Failed() {
			runtime.Gosched()
		}
	}
	l.began = time.Since(l.base)
	for _, c := range held {
		_ = c.Close()
	}
	done.Wait()
	if b.Failed() {
		b.FailNow()
	}
	l.report(b)
}

// report compares each wait with the fair one, the place in the queue × the mean
// hold ÷ connections: with the mean of all holds and, since the machine may be
// slower for a while, of those up to that place.
func (l *line) report(b *testing.B) {
	var sum time.Duration
	for _, t := range l.turns {
		sum += t.left - t.entered
	}
	mean := float64(sum) / queueLength
	ahead := 0.0
	var byMean, byAhead []float64
	for i, t := range l.turns {
		ahead += float64(t.left - t.entered)
		waited := float64(t.entered - l.began)
		byMean = append(byMean, waited/(float64(i+1)*mean/queueConns))
		byAhead = append(byAhead, waited/(ahead/queueConns))
	}
	b.ReportMetric(float64(l.overtaken()), overtaken.unit)
	b.ReportMetric(quantile(byMean, 0.99), fairWait.unit)
	b.ReportMetric(quantile(byAhead, 0.99), waitAhead.unit)
	b.ReportMetric(mean, meanHold.unit)
}

// overtaken counts those who were certainly not served in the order of arrival:
// somebody who came later was in the driver already, when the connection that
// they got was not even given back. What the scheduler does with two who were
// given theirs at the same time is not in it.
func (l *line) overtaken() (n int) {
	earliest := time.Duration(1<<63 - 1) // of those who came later
	for _, t := range slices.Backward(l.turns) {
		if earliest < max(t.freed, l.began) {
			n++
		}
		earliest = min(earliest, t.entered)
	}
	return n
}

// Connect opens nothing.
func (l *line) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := l.NullConnector.Connect(ctx)
	return &slowConn{Conn: inner, line: l}, err
}

// slowConn is a connection of the null driver that takes its time.
type slowConn struct {
	driver.Conn
	line  *line
	freed time.Duration
}

// ExecContext takes the hold. Its first argument is the place in the queue. The
// Go runtime, where everybody sleeps, wakes by the millisecond only, which is
// ten times the hold: so it is the system that we sleep in.
func (c *slowConn) ExecContext(_ context.Context, _ string, args []driver.NamedValue) (driver.Result, error) {
	t := &c.line.turns[args[0].Value.(int64)]
	t.freed, t.entered = c.freed, time.Since(c.line.base)
	wait := syscall.NsecToTimespec(int64(queueHold))
	if err := syscall.Nanosleep(&wait, nil); err != nil && err != syscall.EINTR {
		return nil, err
	}
	t.left = time.Since(c.line.base)
	c.freed = t.left
	return driver.RowsAffected(1), nil
}
