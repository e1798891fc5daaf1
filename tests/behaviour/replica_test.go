package behaviour

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
)

// replicated is a database with one replica, which is a fake database of its own.
type replicated struct {
	*stubdialect.Stub
	replica  *replicated
	standby  bool
	position atomic.Int64           // of the log: written, or replayed
	ahead    atomic.Bool            // the primary has flushed what the replica does not get
	starts   atomic.Int64           // of the server
	asking   atomic.Pointer[func()] // is called by Written after it knows the position
	silent   atomic.Bool            // it ends no connection
}

func newReplicated() *replicated {
	p := &replicated{Stub: stubdialect.New(dialects.Traits{})}
	p.replica = &replicated{Stub: stubdialect.New(dialects.Traits{}), standby: true}
	return p
}

func (r *replicated) Replica(string) (dialects.Template, error) { return r.replica, nil }
func (r *replicated) Standbys() ([]string, error)               { return []string{"db2:1"}, nil }
func (r *replicated) Dialect() dialects.Dialect                 { return r }
func (r *replicated) OnlyReads(text string) bool                { return text == read }
func (r *replicated) AsksBack(string) bool                      { return false }

func (r *replicated) Dial(ctx context.Context, cred *dialects.Credential) (dialects.Session, error) {
	s, err := r.Stub.Dial(ctx, cred)
	if err != nil {
		return nil, err
	}
	return &positioned{s.(*stubdialect.Session), r, r.starts.Load()}, nil
}

func place(position string) int {
	n, err := strconv.Atoi(position)
	if err != nil {
		return -1
	}
	return n
}

func (r *replicated) Valid(position string) bool { return place(position) >= 0 }
func (r *replicated) Reached(position, replayed string) bool {
	return place(replayed) >= place(position)
}
func (r *replicated) SameDatabase(a, b string) bool { return r.Valid(a) && r.Valid(b) }

var _ dialects.Positions = (*replicated)(nil)

type positioned struct {
	*stubdialect.Session
	of    *replicated
	since int64 // of that start
}

func (s *positioned) Written(ctx context.Context) (dialects.Log, error) {
	log := dialects.Log{Position: strconv.FormatInt(s.of.position.Add(1), 10), Flushed: "0"}
	if s.of.ahead.Load() {
		log.Flushed = "1000000"
	}
	if asking := s.of.asking.Swap(nil); asking != nil {
		(*asking)()
	}
	return log, ctx.Err()
}

func (s *positioned) Replayed(context.Context, bool) (dialects.ReplicaState, error) {
	if s.since != s.of.starts.Load() {
		return dialects.ReplicaState{}, errors.New("the server was restarted")
	}
	return dialects.ReplicaState{Position: strconv.FormatInt(s.of.position.Load(), 10), Standby: s.of.standby}, nil
}

func (s *positioned) Close(ctx context.Context) error {
	if s.of.silent.Load() {
		<-ctx.Done()
	}
	return errors.Join(ctx.Err(), s.Session.Close(ctx))
}

// openReplicated opens a Connector with the replica of d. Where a read ran is what it reads.
func openReplicated(t *testing.T, d *replicated, options ...pooldriver.Option) (*sql.DB, *pooldriver.Connector) {
	t.Helper()
	c := pooldriver.Wrap(stubdialect.Connector(d), append([]pooldriver.Option{quiet, func(c *pooldriver.Config) {
		c.Replicas, c.ReplicaWait = []string{"auto"}, 0
	}}, options...)...)
	require.NoError(t, c.Err())
	db := sql.OpenDB(c)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err := db.Exec("CREATE TABLE t (a INT)")
	require.NoError(t, err)
	return db, c
}

const read = "SELECT 1"

// isOnReplica executes a read, and reports whether the replica has executed it.
func isOnReplica(t *testing.T, ctx context.Context, d *replicated, on interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}) bool {
	t.Helper()
	primary, onReplica := d.Server.Executed(read), d.replica.Server.Executed(read)
	require.NoError(t, on.QueryRowContext(ctx, read).Scan(new(int)))
	primary, onReplica = d.Server.Executed(read)-primary, d.replica.Server.Executed(read)-onReplica
	require.Equal(t, 1, primary+onReplica)
	return onReplica == 1
}

func TestAReplicaServesAContextWhenItHasItsWrites(t *testing.T) {
	d := newReplicated()
	db, c := openReplicated(t, d)
	ctx := pooldriver.WithReads(t.Context())
	require.False(t, isOnReplica(t, ctx, d, db), "nobody has asked for a replica")
	onReplica := pooldriver.Replica(ctx)
	require.True(t, isOnReplica(t, onReplica, d, db))
	_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	require.False(t, isOnReplica(t, onReplica, d, db), "it does not have the write")
	require.True(t, isOnReplica(t, pooldriver.Replica(t.Context()), d, db), "the write is of another context")
	token := pooldriver.Token(ctx)
	require.NotEmpty(t, token)
	require.False(t, isOnReplica(t, pooldriver.Replica(pooldriver.WithToken(t.Context(), token)), d, db))
	require.False(t, isOnReplica(t, pooldriver.Replica(pooldriver.WithToken(t.Context(), "forged")), d, db))

	d.replica.position.Store(1000)
	require.Eventually(t, func() bool { return isOnReplica(t, onReplica, d, db) }, time.Minute, time.Millisecond)
	require.True(t, isOnReplica(t, pooldriver.Replica(pooldriver.WithToken(t.Context(), token)), d, db))

	d.Server.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Err: errors.New("it may have been executed")})
	_, err = db.ExecContext(ctx, "INSERT INTO t VALUES (2)")
	require.Error(t, err)
	require.False(t, isOnReplica(t, onReplica, d, db), "where a write is that has failed is not known")
	require.True(t, isOnReplica(t, onReplica, d, db), "the primary has told how far it was then")
	reads := c.Stats().Replica.Reads
	require.Equal(t, uint64(1), reads[pooldriver.ReplicaUnknown]-1, "one more is that of the forged token")
	require.Positive(t, reads[pooldriver.ReplicaBehind])
	require.Positive(t, reads[pooldriver.ReplicaServed])
}

func TestWorkOnAReplicaMayFinishOnThePrimaryWhileTheConnectorDrains(t *testing.T) {
	d := newReplicated()
	db, c := openReplicated(t, d)
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	require.True(t, isOnReplica(t, pooldriver.Replica(ctx), d, conn))
	held := c.Holders()
	require.Len(t, held, 1)
	require.True(t, held[0].Replica)
	require.Equal(t, "db2:1", held[0].Host)
	require.Equal(t, 1, c.Stats().Replica.Pools[0].Pool.Lent)

	drained := make(chan error)
	go func() { drained <- c.Drain(t.Context()) }()
	require.Eventually(t, func() bool {
		return errors.Is(db.QueryRowContext(pooldriver.Replica(t.Context()), read).Scan(new(int)), pooldriver.ErrClosed)
	}, time.Minute, time.Millisecond)
	_, err = db.ExecContext(ctx, "INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.NoError(t, <-drained)
	require.Empty(t, d.Server.State().Sessions)
	require.Empty(t, d.replica.Server.State().Sessions)
}

func TestDrainWaitsForASilentReplicaForASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newReplicated()
		db, c := openReplicated(t, d)
		require.True(t, isOnReplica(t, pooldriver.Replica(t.Context()), d, db))
		d.replica.silent.Store(true)
		c.Flush() // it is told to end its connection before Drain begins
		synctest.Wait()
		begun := time.Now()
		require.NoError(t, c.Drain(t.Context()))
		require.LessOrEqual(t, time.Since(begun), time.Second+10*time.Millisecond)
		require.Empty(t, d.Server.State().Sessions, "the primary has ended all connections")
		time.Sleep(time.Minute) // as long as the pool of the replica waits for the ends of its connections
		require.Empty(t, d.replica.Server.State().Sessions)
	})
}

func TestARolledBackTransactionMayHaveCommitted(t *testing.T) {
	d := newReplicated()
	db, _ := openReplicated(t, d)
	ctx := pooldriver.WithReads(t.Context())
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = tx.Exec("CREATE TABLE u (a INT)") // MySQL commits before it
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	require.False(t, isOnReplica(t, pooldriver.Replica(ctx), d, db))
}

// servedByReplica has a replica that has everything serve a context, of WithReads and of Replica, that has written.
func servedByReplica(t *testing.T) (d *replicated, db *sql.DB, ctx, onReplica context.Context) {
	t.Helper()
	d = newReplicated()
	db, _ = openReplicated(t, d)
	d.replica.position.Store(1000)
	ctx = pooldriver.WithReads(t.Context())
	onReplica = pooldriver.Replica(ctx)
	_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (0)")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return isOnReplica(t, onReplica, d, db) }, time.Minute, time.Millisecond)
	return d, db, ctx, onReplica
}

func TestAWriteThatIsLostWhileThePrimaryIsAskedStaysUnknown(t *testing.T) {
	d, db, ctx, onReplica := servedByReplica(t)
	lose := func() {
		d.Server.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Err: errors.New("it may have been executed")})
		_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (2)")
		require.Error(t, err)
	}
	d.asking.Store(&lose)
	_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	require.False(t, isOnReplica(t, onReplica, d, db), "the position was asked for before the other write ended")
	require.True(t, isOnReplica(t, onReplica, d, db))
}

func TestAWriteWhoseRowsFailIsUnknown(t *testing.T) {
	d, db, ctx, onReplica := servedByReplica(t)
	const writes = "SELECT 2"
	d.Server.Inject(fakedb.Fault{Call: fakedb.RowsNext, Err: errors.New("lost")})
	require.Error(t, db.QueryRowContext(ctx, writes).Scan(new(int)))
	require.False(t, isOnReplica(t, onReplica, d, db))
	require.NoError(t, db.QueryRowContext(ctx, writes).Scan(new(int)))
	require.True(t, isOnReplica(t, onReplica, d, db))
}

func TestAReadThatIsInTheWayOfTheReplicationRunsOnThePrimary(t *testing.T) {
	d := newReplicated()
	db, c := openReplicated(t, d)
	ctx := pooldriver.Replica(t.Context())
	d.replica.Server.Inject(fakedb.Fault{Call: fakedb.ConnQueryCtx, Err: stubdialect.ErrConflict})
	before := d.Server.Executed(read)
	require.NoError(t, db.QueryRowContext(ctx, read).Scan(new(int)))
	require.Equal(t, before+1, d.Server.Executed(read))
	require.Equal(t, uint64(1), c.Stats().Replica.Reads[pooldriver.ReplicaRefused])
	require.True(t, isOnReplica(t, ctx, d, db), "the next time it may not be in the way")

	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	d.replica.Server.Inject(fakedb.Fault{Call: fakedb.ConnQueryCtx, Err: stubdialect.ErrConflict})
	require.ErrorIs(t, tx.QueryRow(read).Scan(new(int)), stubdialect.ErrConflict, "the transaction has to run once more")
	require.NoError(t, tx.Rollback())
}

func TestATransactionOnAReplicaBeginsWhileThePrimaryCanStillServeIt(t *testing.T) {
	d := newReplicated()
	db, _ := openReplicated(t, d, func(c *pooldriver.Config) { c.LazyBegin = true })
	d.replica.Server.Refuse(errors.New("unreachable"))
	tx, err := db.BeginTx(pooldriver.Replica(t.Context()), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	require.NoError(t, tx.QueryRow(read).Scan(new(int)))
	require.NoError(t, tx.Commit())
}

func TestAReplicaThatNobodyHasAskedLatelyMayBeTooLate(t *testing.T) {
	d := newReplicated()
	db, c := openReplicated(t, d, func(c *pooldriver.Config) { c.ReplicaMaxLag, c.ReplicaWait = time.Second, time.Minute })
	d.ahead.Store(true)
	late := time.Now()
	go func() { // as soon as it serves
		time.Sleep(50 * time.Millisecond)
		d.ahead.Store(false)
	}()
	require.True(t, isOnReplica(t, pooldriver.Replica(t.Context()), d, db))
	require.GreaterOrEqual(t, time.Since(late), 50*time.Millisecond)
	require.Zero(t, c.Stats().Replica.Reads[pooldriver.ReplicaLate])
}

// TestAReadIsLateIfTheReplicaBecomesTooOldWhileItWaitsForAConnection, and when the primary falls silent.
func TestAReadIsLateIfTheReplicaBecomesTooOldWhileItWaits(t *testing.T) {
	d := newReplicated()
	db, c := openReplicated(t, d, func(c *pooldriver.Config) { c.ReplicaMaxLag, c.ReplicaMaxConns = 500*time.Millisecond, 1 })
	onReplica := pooldriver.Replica(t.Context())
	require.Eventually(t, func() bool { return isOnReplica(t, onReplica, d, db) }, time.Minute, time.Millisecond) // its lag is known
	var tx *sql.Tx
	require.Eventually(t, func() bool { // not where the machine has stood still, and the lag is not known any more
		var err error
		tx, err = db.BeginTx(onReplica, &sql.TxOptions{ReadOnly: true})
		require.NoError(t, err)
		return c.Stats().Replica.Pools[0].Pool.Lent == 1 || tx.Rollback() != nil
	}, time.Minute, time.Millisecond)
	before := c.Stats().Replica.Reads[pooldriver.ReplicaLate]
	d.ahead.Store(true)
	waits := make(chan error)
	executed := d.Server.Executed(read)
	go func() { waits <- db.QueryRowContext(onReplica, read).Scan(new(int)) }()
	require.Eventually(t, func() bool { return c.Stats().Replica.Pools[0].Lag > 600*time.Millisecond }, time.Minute, 10*time.Millisecond)
	require.NoError(t, tx.Rollback())
	require.NoError(t, <-waits)
	require.Equal(t, executed+1, d.Server.Executed(read))
	require.Equal(t, before+1, c.Stats().Replica.Reads[pooldriver.ReplicaLate])
	d.ahead.Store(false)
	require.Eventually(t, func() bool { return isOnReplica(t, onReplica, d, db) }, time.Minute, 10*time.Millisecond)
}

func TestTheTaskOfAnOperationIsAskedForOnce(t *testing.T) {
	d := newReplicated()
	var asked atomic.Int64
	db, _ := openReplicated(t, d, func(c *pooldriver.Config) {
		c.TaskKey = func(context.Context) (any, context.Context) { asked.Add(1); return nil, nil }
	})
	for _, ctx := range []context.Context{t.Context(), pooldriver.Replica(t.Context())} {
		asked.Store(0)
		require.NoError(t, db.QueryRowContext(ctx, read).Scan(new(int)))
		require.EqualValues(t, 1, asked.Load())
		_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		require.EqualValues(t, 2, asked.Load())
	}
}

func TestAReadThatJoinsTheSessionOnThePrimaryIsNotFollowedByAnOlderOne(t *testing.T) {
	for _, mode := range []pooldriver.ReadsMode{pooldriver.ReadsExplicit, pooldriver.ReadsAuto} {
		d := newReplicated()
		db, c := openReplicated(t, d, func(c *pooldriver.Config) { c.ReplicaReads = mode })
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		_, err := db.ExecContext(ctx, "SET a = 1")
		require.NoError(t, err)
		before := d.position.Load()
		if mode == pooldriver.ReadsExplicit {
			require.False(t, isOnReplica(t, ctx, d, db))
			require.Equal(t, before, d.position.Load(), "the program has sent it to the primary")
			ctx = pooldriver.Replica(ctx)
		}
		require.False(t, isOnReplica(t, ctx, d, db), "the session is on the primary")
		require.Equal(t, before+1, d.position.Load(), "the primary was asked how far it was")
		require.Equal(t, uint64(1), c.Stats().Replica.Reads[pooldriver.ReplicaJoined])
	}
}

func TestWithoutFallbackAContextFindsAReplicaAgain(t *testing.T) {
	d := newReplicated()
	db, _ := openReplicated(t, d, func(c *pooldriver.Config) {
		c.ReplicaFallback, c.ReplicaWait = pooldriver.ReplicaFallbackOff, time.Minute
	})
	d.replica.position.Store(1000)
	ctx := pooldriver.WithReads(t.Context())
	onReplica := pooldriver.Replica(ctx)
	d.Server.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Err: errors.New("it may have been executed")})
	_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (2)")
	require.Error(t, err)
	require.True(t, isOnReplica(t, onReplica, d, db), "the primary was asked where it was")

	d.replica.Server.Refuse(errors.New("unreachable"))
	d.replica.Server.KillAll()
	require.ErrorIs(t, db.QueryRowContext(onReplica, read).Scan(new(int)), pooldriver.ErrNoReplica)
	d.replica.Server.Heal()
	before := d.position.Load()
	require.Eventually(t, func() bool { return db.QueryRowContext(onReplica, read).Scan(new(int)) == nil }, time.Minute, 10*time.Millisecond)
	require.Greater(t, d.position.Load(), before, "how new the next replica has to be")
}

func TestAConnWhoseReadHasAskedThePrimaryForItsPositionStaysWithTheReplica(t *testing.T) {
	d := newReplicated()
	db, c := openReplicated(t, d, func(c *pooldriver.Config) {
		c.ReplicaFallback, c.ReplicaWait = pooldriver.ReplicaFallbackOff, time.Minute
	})
	d.replica.position.Store(1000)
	ctx := pooldriver.WithReads(t.Context())
	d.Server.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Err: errors.New("it may have been executed")})
	_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (2)")
	require.Error(t, err)
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	defer conn.Close()
	for range 2 {
		require.True(t, isOnReplica(t, pooldriver.Replica(ctx), d, conn), "the program has not used the primary")
	}
	require.Zero(t, c.Stats().Pool.Lent, "nobody uses it")
	require.Zero(t, c.Stats().Replica.Reads[pooldriver.ReplicaJoined])
}

func TestWithoutFallbackTheEndOfTheContextIsTheError(t *testing.T) {
	d := newReplicated()
	db, _ := openReplicated(t, d, func(c *pooldriver.Config) {
		c.ReplicaFallback, c.ReplicaWait = pooldriver.ReplicaFallbackOff, time.Minute
	})
	ctx := pooldriver.WithReads(t.Context())
	_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	bounded, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	err = db.QueryRowContext(pooldriver.Replica(bounded), read).Scan(new(int))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, pooldriver.ErrNoReplica)
}

func TestWithoutFallbackASilentPrimaryIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newReplicated()
		db, c := openReplicated(t, d, func(c *pooldriver.Config) {
			c.ReplicaFallback, c.ReplicaWait, c.PingTimeout = pooldriver.ReplicaFallbackOff, time.Minute, 10*time.Millisecond
		})
		d.replica.position.Store(1000)
		ctx := pooldriver.WithReads(t.Context())
		d.Server.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Err: errors.New("it may have been executed")})
		_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (2)")
		require.Error(t, err)
		silence := func() { time.Sleep(50 * time.Millisecond) }
		d.asking.Store(&silence)
		require.ErrorIs(t, db.QueryRowContext(pooldriver.Replica(ctx), read).Scan(new(int)), pooldriver.ErrNoReplica)
		require.True(t, isOnReplica(t, pooldriver.Replica(ctx), d, db))
		require.Equal(t, uint64(1), c.Stats().Replica.Reads[pooldriver.ReplicaUnknown])
	})
}

func TestAReadInTheRowsLoopOfAWriteSeesIt(t *testing.T) {
	d, db, ctx, onReplica := servedByReplica(t)
	rows, err := db.QueryContext(ctx, "SELECT 2") // may write, as UPDATE … RETURNING does
	require.NoError(t, err)
	require.True(t, rows.Next())
	require.False(t, isOnReplica(t, onReplica, d, db))
	require.NoError(t, rows.Close())
	require.Eventually(t, func() bool { return isOnReplica(t, onReplica, d, db) }, time.Minute, time.Millisecond)
}

func TestAWriteCountsForItsContextWhateverTheTransactionsContextIs(t *testing.T) {
	d, db, ctx, onReplica := servedByReplica(t)
	for _, begin := range []func() context.Context{t.Context, func() context.Context { return pooldriver.WithReads(t.Context()) }} {
		tx, err := db.BeginTx(begin(), nil)
		require.NoError(t, err)
		require.True(t, isOnReplica(t, onReplica, d, db), "nothing was sent")
		_, err = tx.ExecContext(ctx, "INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		require.False(t, isOnReplica(t, onReplica, d, db), "it may be committed any time now")
		d.position.Add(10_000)
		require.NoError(t, tx.Commit())
		require.False(t, isOnReplica(t, onReplica, d, db), "the replica does not have it")
		d.replica.position.Store(d.position.Load() + 1000)
		require.Eventually(t, func() bool { return isOnReplica(t, onReplica, d, db) }, time.Minute, time.Millisecond)
	}
}

func TestAWriteOfAnotherConnectorCounts(t *testing.T) {
	d, db, ctx, onReplica := servedByReplica(t)
	with := sql.OpenDB(pooldriver.Wrap(stubdialect.Connector(d), quiet, func(c *pooldriver.Config) { c.Replicas = []string{"auto"} }))
	without := sql.OpenDB(pooldriver.Wrap(stubdialect.Connector(d), quiet))
	defer with.Close()
	defer without.Close()
	for _, other := range []*sql.DB{with, without} {
		d.position.Add(10_000)
		_, err := other.ExecContext(ctx, "INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		require.False(t, isOnReplica(t, onReplica, d, db))
		d.replica.position.Store(d.position.Load() + 1000)
		require.Eventually(t, func() bool { return isOnReplica(t, onReplica, d, db) }, time.Minute, time.Millisecond)
	}
}

func TestAReplicaThatWasRestartedShowsNothingOlder(t *testing.T) {
	d := newReplicated()
	d.replica.position.Store(1_000_000)
	db, _ := openReplicated(t, d)
	ctx := pooldriver.Replica(pooldriver.WithReads(t.Context()))
	require.True(t, isOnReplica(t, ctx, d, db))
	d.replica.starts.Add(1)
	d.replica.Server.KillAll()
	require.False(t, isOnReplica(t, ctx, d, db), "it may be older than it was")
	require.Eventually(t, func() bool { return isOnReplica(t, ctx, d, db) }, time.Minute, 10*time.Millisecond, "the primary has told how far it is")
}

// TestWhatNobodyServesIsCountedAsNoReadServed: a read that fails, and one that the replica's pool refuses.
func TestWhatNobodyServesIsCountedAsNoReadServed(t *testing.T) {
	d := newReplicated()
	db, c := openReplicated(t, d, target, func(c *pooldriver.Config) { c.ReplicaMaxConns, c.ReplicaFallback = 1, pooldriver.ReplicaFallbackOff })
	onReplica := pooldriver.Replica(t.Context())
	require.True(t, isOnReplica(t, onReplica, d, db))
	served := func() uint64 { return c.Stats().Replica.Reads[pooldriver.ReplicaServed] }
	before := served()
	d.replica.Server.Inject(fakedb.Fault{Call: fakedb.ConnQueryCtx, Err: errors.New("division by zero")})
	require.Error(t, db.QueryRowContext(onReplica, read).Scan(new(int)))
	require.Equal(t, before, served())

	tx, err := db.BeginTx(onReplica, &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	before = served()
	refused := make(chan error, 2)
	for n, ctx := range []context.Context{low(onReplica), onReplica} {
		go func() { refused <- db.QueryRowContext(ctx, read).Scan(new(int)) }()
		require.Eventually(t, func() bool { return c.Stats().Replica.Pools[0].Pool.Waiting == n+1 }, time.Minute, time.Millisecond)
	}
	require.NoError(t, tx.Rollback())
	errs := errors.Join(<-refused, <-refused)
	require.ErrorIs(t, errs, pooldriver.ErrOverloaded)
	s := c.Stats()
	require.EqualValues(t, 1, s.AcquireFailures[pooldriver.AcquireOverloaded])
	require.Equal(t, before+1, s.Replica.Reads[pooldriver.ReplicaServed], "the other one")
}

func TestAReplicasStateSaysSinceWhenAndWhy(t *testing.T) {
	d := newReplicated()
	db, c := openReplicated(t, d)
	onReplica := pooldriver.Replica(t.Context())
	require.True(t, isOnReplica(t, onReplica, d, db))
	serves := c.Stats().Replica.Pools[0]
	require.Equal(t, pooldriver.ReplicaServed, serves.State)
	require.Zero(t, serves.Failing)
	d.replica.Server.Refuse(errors.New("no route"))
	d.replica.Server.KillAll()
	require.False(t, isOnReplica(t, onReplica, d, db))
	dead := c.Stats().Replica.Pools[0]
	require.Equal(t, pooldriver.ReplicaDead, dead.State)
	require.True(t, dead.Since.After(serves.Since))
	require.Contains(t, dead.Failing.Error, "no route")
	require.Equal(t, dead.Since, c.Stats().Replica.Pools[0].Since, "it is the same state")
}
