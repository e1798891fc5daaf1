package integration

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

func TestSeveralHostsRoles(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, p pair) {
		t.Run("the words lead to the server that does", p.testWords)
		t.Run("a program's own read-only transaction replaces nothing", p.testOwnReadOnly)
		t.Run("a host that hangs up is tried ever more rarely", p.testPaused)
		t.Run("a host that never answers costs its share of one dial", p.testHole)
		t.Run("an idle connection to a demoted server is found", p.testHealth)
		t.Run("roles switch under load", p.testSwitch)
		if p.engine == testbed.Postgres {
			t.Run("one host without a word is left when it stops taking writes", p.testOneHost)
		} else {
			t.Run("a statement is killed on the host it runs on", p.testKill)
		}
	})
}

func (p pair) testWords(t *testing.T) {
	freeze(t, p.b)
	defer thaw(t, p.b)
	forward, backward := list(p.a.Addr, p.b.Addr), list(p.b.Addr, p.a.Addr)
	standby := map[testbed.Engine]string{testbed.Postgres: "", testbed.MySQL: "b"}[p.engine] // no standby: it only does not write
	preferred := map[testbed.Engine]string{testbed.Postgres: "a", testbed.MySQL: "b"}[p.engine]
	primary := map[testbed.Engine]string{testbed.Postgres: "b", testbed.MySQL: "a"}[p.engine]
	onB := 0
	for _, c := range []struct{ hosts, attrs, want string }{
		{forward, "any", "a"},
		{backward, "any", "b"},
		{forward, "read-write", "a"},
		{backward, "read-write", "a"},
		{forward, "read-only", "b"},
		{backward, "primary", primary},
		{forward, "standby", standby},
		{forward, "prefer-standby", preferred},
		{p.b.Addr, "read-write", ""},
		{p.b.Addr, "read-only", "b"},
	} {
		db, _ := p.open(t, c.hosts, "target_session_attrs="+c.attrs)
		if c.want != "" {
			require.Equal(t, c.want, whose(t, db), c)
			if c.want == "b" {
				onB++
			}
			continue
		}
		err := db.PingContext(t.Context())
		require.ErrorIs(t, err, dialects.ErrWrongRole, c)
		require.ErrorContains(t, err, "target_session_attrs="+c.attrs)
		require.NotContains(t, err.Error(), p.Password)
	}
	require.Eventually(t, func() bool { return p.backends(t, p.b) == onB }, slowMachine, 10*time.Millisecond,
		"servers that would not do have let go; the connections of the open pools remain")
}

func (p pair) testOwnReadOnly(t *testing.T) {
	db, c := p.open(t, list(p.a.Addr, p.b.Addr), "target_session_attrs=read-write", "pool_max_conns=2")
	for range 10 {
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), "INSERT INTO written VALUES (1)")
		require.Error(t, err)
		require.NoError(t, tx.Rollback())
		mustExec(t, db, "INSERT INTO written VALUES (1)")
	}
	mustExec(t, db, "DELETE FROM written")
	stats := c.Stats()
	require.LessOrEqual(t, stats.Pool.Creates, uint64(2), "no more than there may be")
	require.Zero(t, stats.WrongRoles)
	require.Zero(t, stats.Discards)
}

func (p pair) testPaused(t *testing.T) {
	dead, tried := hole(t, true)
	db, c := p.open(t, list(dead, p.a.Addr), "pool_max_conns=4")
	const enough = 12 // dials that succeed, more than there are tries
	dials := 0
	each := map[testbed.Engine]int{testbed.Postgres: 2, testbed.MySQL: 1}[p.engine]
	begun := time.Now()
	for end := begun.Add(1500 * time.Millisecond); dials < enough || time.Now().Before(end) || tried() < 3 && time.Since(begun) < slowMachine; dials++ {
		require.Equal(t, "a", whose(t, db))
		c.Flush()
	}
	// At 0, 0.1, 0.3, 0.7 and 1.5 s, if a dial takes no time, and then each few seconds. pgx
	// follows each with a request to cancel what the connection that broke may have begun.
	require.LessOrEqual(t, tried(), (6+int(time.Since(begun)/(3*time.Second)))*each)
	require.GreaterOrEqual(t, tried(), 3)
}

func (p pair) testHole(t *testing.T) {
	black, tried := hole(t, false)
	db, _ := p.open(t, list(black, p.a.Addr), "pool_connect_timeout=10s") // of which the other half is for a slow machine
	begin := time.Now()
	require.Equal(t, "a", whose(t, db))
	first := time.Since(begin)
	require.GreaterOrEqual(t, first, 5*time.Second)
	require.Less(t, first, 10*time.Second)
	require.Equal(t, 1, tried())
}

func (p pair) testHealth(t *testing.T) {
	db, c := p.open(t, list(p.a.Addr, p.b.Addr), "target_session_attrs=read-write", "pool_health_check_period=50ms", "pool_min_conns=3")
	require.Equal(t, "a", whose(t, db))
	require.Eventually(t, func() bool { return p.backends(t, p.a) == 3 }, slowMachine, 10*time.Millisecond)
	freeze(t, p.a)
	defer thaw(t, p.a)
	require.Eventually(t, func() bool { return p.backends(t, p.a) == 0 && p.backends(t, p.b) == 3 }, slowMachine, 10*time.Millisecond,
		"nobody has used them")
	require.Positive(t, c.Stats().WrongRoles)
}

// testSwitch moves the role from a to b, and back, while tasks write.
func (p pair) testSwitch(t *testing.T) {
	freeze(t, p.b)
	defer thaw(t, p.b)
	db, c := p.open(t, list(p.a.Addr, p.b.Addr), "target_session_attrs=read-write", "pool_max_conns=8")
	w := startWriters(t, db, 16)
	usual := w.await(t, 50)
	freeze(t, p.a)
	defer thaw(t, p.a)
	thaw(t, p.b)
	switched := time.Now()
	w.await(t, 50)
	t.Logf("50 writes were acknowledged %v after the switch", time.Since(switched).Round(time.Millisecond))
	require.Less(t, time.Since(switched), backSoon+3*usual)
	require.Eventually(t, func() bool { return p.backends(t, p.a) == 0 }, 30*time.Second, 10*time.Millisecond, "under load; idle ones are looked at once a minute")
	freeze(t, p.b)
	thaw(t, p.a)
	w.await(t, 50)
	require.Eventually(t, func() bool { return p.backends(t, p.b) == 0 }, 30*time.Second, 10*time.Millisecond)
	acknowledged := w.stop()
	require.Equal(t, acknowledged, p.rows(t, p.a)+p.rows(t, p.b), "each acknowledged write is there, once; none of the others is")
	require.Positive(t, p.rows(t, p.b))
	require.Positive(t, c.Stats().WrongRoles)
	thaw(t, p.b)
	for _, s := range []*testbed.Server{p.a, p.b} {
		admin := p.Via(s.Addr).OpenBare(t)
		mustExec(t, admin, "DELETE FROM written")
	}
}

// testOneHost: PostgreSQL tells each connection what it is, so a change shows
// without a word in the DSN.
func (p pair) testOneHost(t *testing.T) {
	db, c := p.open(t, p.a.Addr, "pool_max_conns=1")
	require.Equal(t, "a", whose(t, db))
	freeze(t, p.a)
	defer thaw(t, p.a)
	for range 5 {
		_, err := db.ExecContext(t.Context(), "INSERT INTO written VALUES (1)")
		require.Error(t, err)
		require.Equal(t, "a", whose(t, db))
	}
	require.EqualValues(t, 2, c.Stats().Pool.Creates, "replaced once; the new one was read-only from the first")
	require.EqualValues(t, 1, c.Stats().WrongRoles)
}

func (p pair) testKill(t *testing.T) {
	freeze(t, p.b)
	defer thaw(t, p.b)
	db, c := p.open(t, list(p.b.Addr, p.a.Addr), "target_session_attrs=read-write", "pool_max_conns=1")
	require.Equal(t, "a", whose(t, db))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(200*time.Millisecond, cancel)
	_, err := db.ExecContext(ctx, "SELECT SLEEP(60)")
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, "a", whose(t, db))
	there := p.Account
	there.Server = p.a
	counted, _, err := there.Backends(t.Context()) // the connection that killed may be listed for a moment
	require.NoError(t, err)
	require.Equal(t, 1, counted, "the statement was killed before the next connection was made")
	require.Zero(t, c.Stats().Orphans)
}
