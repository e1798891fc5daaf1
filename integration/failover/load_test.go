package failover

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/failover/ledger"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
	"github.com/pooldriver/pooldriver/pool"
)

// load is many tasks that make transfers, one after the other, as a program would
// that knows of no failover: whatever fails is given up, and after a short pause
// the next one is tried.
type load struct {
	db       *sql.DB
	mark     ledger.Mark
	seed     uint64
	patience time.Duration // of a task for one transfer
	make     transferrer

	failed  atomic.Int64 // transfers that were given up
	stop    chan struct{}
	all     sync.WaitGroup
	workers []*worker
}

// worker is one of them.
type worker struct {
	*load
	number int
	random *rand.Rand
	last   atomic.Int64 // when it had its last acknowledgement, in Unix nanoseconds

	// Its own until the load has stopped.
	acknowledged []acknowledgement
	refused      []string // not committed: the error came before the commit
	unknown      []string // the commit's answer was lost
	errors       map[string]int
}

type acknowledgement struct {
	transfer string
	at       time.Time
}

const (
	tasks        = 50
	longPatience = 10 * time.Second
	pause        = 20 * time.Millisecond
	settleWithin = 2 * time.Minute // what the tests wait for, before it is a failure
)

// create makes the ledger, on a connection that is gone then.
func create(t *testing.T, account testbed.Account) {
	t.Helper()
	db := account.OpenBare(t)
	require.NoError(t, ledger.Create(t.Context(), db))
	require.NoError(t, db.Close())
	require.Eventually(t, func() bool {
		n, _, err := account.Backends(t.Context())
		return err == nil && n == 0
	}, 10*time.Second, time.Millisecond)
}

// transferrer makes a transfer. committing becomes true when all that is left to do is to commit.
type transferrer func(ctx context.Context, l *load, transfer ledger.Transfer, committing *bool) error

func startLoad(t *testing.T, db *sql.DB, mark ledger.Mark, patience time.Duration) *load {
	t.Helper()
	return startTasks(t, tasks, inTask, db, mark, patience)
}

// startTasks starts a load of n tasks.
func startTasks(t *testing.T, n int, how transferrer, db *sql.DB, mark ledger.Mark, patience time.Duration) *load {
	t.Helper()
	l := &load{db: db, mark: mark, seed: randomtest.Seed(t), patience: patience, make: how, stop: make(chan struct{})}
	for i := range n {
		w := &worker{load: l, number: i, random: rand.New(rand.NewPCG(l.seed, uint64(i))), errors: map[string]int{}}
		l.workers = append(l.workers, w)
		l.all.Go(w.run)
	}
	t.Cleanup(l.end)
	return l
}

// end returns when every task has had its answer.
func (l *load) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.all.Wait()
}

func (w *worker) run() {
	for n := 0; ; n++ {
		select {
		case <-w.stop:
			return
		default:
		}
		id := fmt.Sprintf("%d/%d", w.number, n)
		committing, err := w.transfer(id)
		now := time.Now()
		switch {
		case err == nil:
			w.acknowledged = append(w.acknowledged, acknowledgement{id, now})
			w.last.Store(now.UnixNano())
			continue
		case committing && !rolledBack(err):
			w.unknown = append(w.unknown, id)
		default:
			w.refused = append(w.refused, id)
		}
		w.failed.Add(1)
		kind := kindOf(err)
		if committing {
			kind = "at COMMIT: " + kind
		}
		w.errors[kind]++
		time.Sleep(pause)
	}
}

// transfer makes one. committing: all that was left to do was to commit.
func (w *worker) transfer(id string) (committing bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), w.patience)
	defer cancel()
	from := w.random.IntN(ledger.Accounts)
	transfer := ledger.Transfer{ID: id, From: from, To: (from + 1 + w.random.IntN(ledger.Accounts-1)) % ledger.Accounts, Amount: 1 + w.random.IntN(100)}
	err = w.make(ctx, w.load, transfer, &committing)
	return committing, err
}

// inTask makes a transfer in a task of its own.
func inTask(ctx context.Context, l *load, transfer ledger.Transfer, committing *bool) error {
	return pooldriver.Do(ctx, func(ctx context.Context) error {
		return pooldriver.InTx(ctx, l.db, nil, func(ctx context.Context, _ *sql.Tx) error {
			if err := transfer.Apply(ctx, l.mark, l.db); err != nil { // as a library would that knows only of db
				return err
			}
			*committing = true
			return nil
		})
	})
}

// waitForAll returns when every task has been served since.
func (l *load) waitForAll(t *testing.T, since time.Time) {
	t.Helper()
	l.waitFor(t, since, settleWithin)
}

func (l *load) waitFor(t *testing.T, since time.Time, within time.Duration) {
	t.Helper()
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(l.workers, func(w *worker) bool { return w.last.Load() < since.UnixNano() })
	}, within, time.Millisecond, "not all tasks are served again")
}

// back says how long after a moment the first acknowledgement came, and when all
// tasks had had one. The load has ended.
func (l *load) back(since time.Time) (first, all time.Duration) {
	first = time.Hour
	for _, w := range l.workers {
		i := slices.IndexFunc(w.acknowledged, func(a acknowledgement) bool { return a.at.After(since) })
		own := w.acknowledged[i].at.Sub(since)
		first, all = min(first, own), max(all, own)
	}
	return first, all
}

// outcome is what the tasks were told.
type outcome struct {
	acknowledged     []acknowledgement
	refused, unknown []string
	errors           map[string]int
}

func (l *load) outcome() outcome {
	o := outcome{errors: map[string]int{}}
	for _, w := range l.workers {
		o.acknowledged = append(o.acknowledged, w.acknowledged...)
		o.refused = append(o.refused, w.refused...)
		o.unknown = append(o.unknown, w.unknown...)
		for kind, n := range w.errors {
			o.errors[kind] += n
		}
	}
	return o
}

// requireKept compares what the tasks were told with what a server has.
func (o outcome) requireKept(t *testing.T, db *sql.DB) {
	t.Helper()
	require.Empty(t, o.requireKeptBut(t, db), "transfers that were acknowledged and are lost")
}

// requireKeptBut is requireKept where the servers do not promise all that was
// acknowledged: it returns what is lost.
func (o outcome) requireKeptBut(t *testing.T, db *sql.DB) (lost []acknowledgement) {
	t.Helper()
	state, err := ledger.Read(t.Context(), db)
	require.NoError(t, err)
	kept := 0
	for _, id := range o.unknown {
		if state.Transfers[id] {
			kept++
		}
	}
	for _, a := range o.acknowledged {
		if !state.Transfers[a.transfer] {
			lost = append(lost, a)
		}
	}
	t.Logf("%d transfers acknowledged, of which %d are lost, %d refused, %d with an unknown outcome, of which %d are there; errors: %v",
		len(o.acknowledged), len(lost), len(o.refused), len(o.unknown), kept, o.errors)
	for _, id := range o.refused {
		require.False(t, state.Transfers[id], "the transfer %s was refused and is there", id)
	}
	require.Len(t, state.Transfers, len(o.acknowledged)-len(lost)+kept, "there are transfers that nobody made")
	require.Empty(t, state.Half)
	require.Zero(t, state.Wrong)
	require.Zero(t, state.Sum)
	return lost
}

// rolledBack: the answer to COMMIT is that it was not done (Galera's conflicts).
func rolledBack(err error) bool {
	var maria *mysql.MySQLError
	return errors.As(err, &maria) && maria.Number == 1213
}

// logged has what the pool says written to the test's log.
func logged(t *testing.T) func(*pooldriver.Config) {
	return func(c *pooldriver.Config) { c.Logger = slog.New(slog.NewTextHandler(t.Output(), nil)) }
}

var digits = regexp.MustCompile(`\d+`)

// kindOf sorts errors by what a program can tell of them.
func kindOf(err error) string {
	var postgres *pgconn.PgError
	var maria *mysql.MySQLError
	var acquire *pool.AcquireError
	var network net.Error
	switch {
	case errors.Is(err, pooldriver.ErrTxLost):
		return "ErrTxLost"
	case errors.As(err, &postgres):
		return postgres.Code
	case errors.As(err, &maria):
		return fmt.Sprint(maria.Number)
	case errors.As(err, &acquire):
		return "no connection in time"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "unexpected EOF"
	case errors.Is(err, pgconn.ErrConnClosed):
		return "conn closed"
	case errors.As(err, &network) && !network.Timeout():
		return "network"
	case errors.Is(err, context.DeadlineExceeded):
		return "the task's time was over"
	}
	return digits.ReplaceAllString(err.Error(), "#")
}
