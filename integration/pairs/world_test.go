package pairs

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/byteproxy"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

const (
	delay      = 15 * time.Millisecond // of the replicas: a read that goes there too early misses something
	idsOfAnAct = 100
	forever    = 2 * time.Minute // longer than anything takes on a busy machine
)

// world is a primary with two replicas, and two databases on them.
type world struct {
	*testbed.ReplicaSet
	account, other testbed.Account
	witness        *sql.DB // on account's database
	elsewhere      *sql.DB // on that of other
	proxies        [2]*byteproxy.Proxy
	acts, turns    atomic.Int64
	bases          atomic.Int64

	bare             map[key]*acting
	sqlBare, pgxBare [2]handle // without and with a tenant
}

const bareTenant = "bare"

func newWorld(t *testing.T, engine testbed.Engine) *world {
	t.Helper()
	w := &world{ReplicaSet: testbed.StartReplicaSet(t, engine), bare: map[key]*acting{}}
	w.account, w.other = w.NewAccount(t), w.NewAccount(t)
	w.witness, w.elsewhere = w.account.Witness(t), w.other.Witness(t)
	if !w.postgres() {
		w.makeMariaDB(t)
		return w
	}
	for _, db := range []*sql.DB{w.witness, w.elsewhere} {
		require.NoError(t, makeTables(t.Context(), db))
	}
	migrate(t, w.account)
	for _, text := range []string{
		granted, fmt.Sprintf("CREATE ROLE %s_b LOGIN PASSWORD '%s'", w.account.User, w.account.Password),
		fmt.Sprintf("ALTER ROLE %s CREATEDB", w.account.User),
	} {
		_, err := w.witness.ExecContext(t.Context(), text)
		require.NoError(t, err, text)
	}
	for i, replica := range w.Replicas {
		admin, err := replica.Admin()
		require.NoError(t, err)
		_, err = admin.ExecContext(t.Context(), fmt.Sprintf("ALTER SYSTEM SET recovery_min_apply_delay = '%dms'", delay.Milliseconds()))
		require.NoError(t, err)
		_, err = admin.ExecContext(t.Context(), "SELECT pg_reload_conf()")
		require.NoError(t, err)
		w.proxies[i], err = byteproxy.Listen(replica.Addr)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, w.proxies[i].Close()) })
	}
	w.CatchUp(t)
	for i, parameter := range []string{"application_name=bare", "application_name=bare&app.tenant=" + bareTenant} {
		w.sqlBare[i] = onSQL(w.account.OpenBare(t, parameter), false)
		pool, err := pgxpool.New(t.Context(), w.account.URL(parameter)+"&pool_max_conns=60")
		require.NoError(t, err)
		t.Cleanup(func() { go pool.Close() }) // it may hang, see TestMain
		w.pgxBare[i] = onPool(pool)
	}
	return w
}

const granted = "GRANT ALL ON ALL TABLES IN SCHEMA public TO PUBLIC; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO PUBLIC"

// makeTables makes what acts need in a database of PostgreSQL.
func makeTables(ctx context.Context, db *sql.DB) error {
	for _, text := range []string{
		"CREATE TABLE writes (id bigint NOT NULL, n int NOT NULL DEFAULT 0, tenant text DEFAULT nullif(current_setting('app.tenant', true), ''))",
		"CREATE INDEX ON writes (id)",
		"CREATE TABLE hot (n int)", "INSERT INTO hot VALUES (0)",
		"CREATE TABLE numbered (n bigserial, id bigint)",
		"CREATE FUNCTION touch(bigint) RETURNS bigint LANGUAGE sql VOLATILE AS 'INSERT INTO writes (id) VALUES ($1) RETURNING id'",
		"CREATE FUNCTION upper(bigint) RETURNS bigint LANGUAGE sql VOLATILE AS 'INSERT INTO writes (id) VALUES ($1) RETURNING id'",
		granted,
	} {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}

func (w *world) postgres() bool { return w.Primary.Engine == testbed.Postgres }

func (w *world) makeMariaDB(t *testing.T) {
	t.Helper()
	for _, db := range []*sql.DB{w.witness, w.elsewhere} {
		for _, text := range []string{
			"CREATE TABLE writes (id bigint NOT NULL, n int NOT NULL DEFAULT 0, tenant varchar(50), INDEX (id))",
			"CREATE TABLE hot (n int)", "INSERT INTO hot VALUES (0)",
			"CREATE TABLE numbered (n bigint AUTO_INCREMENT PRIMARY KEY, id bigint)",
		} {
			_, err := db.ExecContext(t.Context(), text)
			require.NoError(t, err, text)
		}
	}
	for i, replica := range w.Replicas {
		var err error
		w.proxies[i], err = byteproxy.Listen(replica.Addr)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, w.proxies[i].Close()) })
	}
	w.CatchUp(t)
	db := w.account.OpenBare(t)
	db.SetMaxIdleConns(0) // they would be counted as the program's
	w.sqlBare[0] = onSQL(db, true)
}

// key names a performance over the bare driver.
type key struct {
	act     *act
	seed    uint64
	face    string
	tenants bool
}

// learn performs acts over the bare driver, each variant once for a face with or without a tenant.
func (w *world) learn(ctx context.Context, acts []*act, face string, tenants bool) {
	tenants = tenants && w.postgres()
	todo := make(chan *acting)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for x := range todo {
				x.perform()
			}
		})
	}
	for _, a := range acts {
		for v := range uint64(variants) {
			k := key{a, v, face, tenants}
			if w.bare[k] != nil {
				continue
			}
			x := newActing(a, v)
			x.mariaDB, x.base, x.ctx, x.plain = !w.postgres(), w.ids(), ctx, ctx
			i := 0
			if tenants {
				i, x.tenant = 1, bareTenant
			}
			x.h = map[string][2]handle{"sql": w.sqlBare, "pgx": w.pgxBare}[face][i]
			w.bare[k] = x
			todo <- x
		}
	}
	close(todo)
	all.Wait()
}

// ids returns the number after which the ids of a new act come.
func (w *world) ids() int64 { return w.bases.Add(idsOfAnAct) }

// rotating are credentials that change when the program has done some acts since. They need no lock: calls never overlap, also
// of a primary and its replicas.
func (w *world) rotating() pooldriver.CredentialSource {
	user, at := w.account.User, w.acts.Load()
	return func(context.Context) (pooldriver.Credential, error) {
		if n := w.acts.Load(); n > at+15 {
			at = n
			if user == w.account.User {
				user += "_b"
			} else {
				user = w.account.User
			}
			w.turns.Add(1)
		}
		return pooldriver.Credential{User: user, Password: w.account.Password, Expires: time.Now().Add(200 * time.Millisecond)}, nil
	}
}

// replicas are the addresses of the replicas, which a test can unplug.
func (w *world) replicas() (all []string) {
	for _, p := range w.proxies {
		if p == nil { // no server runs
			return []string{"127.0.0.1:2", "127.0.0.1:3"}
		}
		all = append(all, p.Addr())
	}
	return all
}

// open makes a Connector for a configuration. The limits of time are for a machine that is very busy.
func (w *world) open(t testing.TB, c configuration, s *setup, account testbed.Account, o *pooldriver.Observer, log slog.Handler) *pooldriver.Connector {
	t.Helper()
	s.option(func(c *pooldriver.Config) {
		c.MaxConns, c.Observer, c.Logger = most, o, slog.New(log)
		c.AcquireTimeout, c.ConnectTimeout, c.PingTimeout, c.CleanTimeout, c.DeadlockAfter = forever, forever, forever, forever, forever
	})
	if c.has("hosts=several") {
		replica := "127.0.0.1:2"
		if w.ReplicaSet != nil {
			replica = w.Replicas[0].Addr
		}
		account = account.Via(account.Addr + "," + replica)
		s.parameters = append(s.parameters, "target_session_attrs=primary")
	}
	url := account.URL(s.parameters...)
	if s.wrap {
		config, err := pgx.ParseConfig(url)
		require.NoError(t, err)
		return pooldriver.Wrap(stdlib.GetConnector(*config), s.options...)
	}
	return pooldriver.New(url, s.options...)
}

// newSetup applies the axes of a configuration.
func (w *world) newSetup(c configuration) *setup {
	s := &setup{world: w}
	for i, a := range axes {
		if a.apply != nil && c[i] >= 0 {
			a.apply(s, a.levels[c[i]])
		}
	}
	return s
}

// sessions asks a server for the programs' sessions.
func sessions(ctx context.Context, s *testbed.Server, database string) (n int, what string, err error) {
	admin, err := s.Admin()
	if err != nil {
		return 0, "", err
	}
	var text sql.NullString
	if s.Engine != testbed.Postgres {
		err = admin.QueryRowContext(ctx, "SELECT count(*), group_concat(command, ': ', left(coalesce(info, ''), 60)) FROM information_schema.processlist WHERE db = ? AND user NOT IN ('root', 'system user')", database).Scan(&n, &text)
		return n, text.String, err
	}
	err = admin.QueryRowContext(ctx, `SELECT count(*), string_agg(state || ': ' || left(query, 60) || coalesce(' since ' || (clock_timestamp() - xact_start)::text, ''), ' | ')
		FROM pg_stat_activity WHERE datname = $1 AND application_name NOT IN ('witness', 'bare') AND backend_type = 'client backend' AND backend_start < statement_timestamp()`, database).Scan(&n, &text)
	return n, text.String, err
}

// watch looks at the sessions of the servers until it is stopped.
func (w *world) watch(database string) (stop func() (peaks [3]int, what [3]string)) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var peaks [3]int
	var what [3]string
	for i, s := range []*testbed.Server{w.Primary, w.Replicas[0], w.Replicas[1]} {
		all.Go(func() {
			for ctx.Err() == nil {
				if n, text, err := sessions(ctx, s, database); err == nil && n > peaks[i] {
					peaks[i], what[i] = n, text
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	return func() ([3]int, [3]string) { cancel(); all.Wait(); return peaks, what }
}

// recorded is a log.
type recorded struct {
	mu    sync.Mutex
	lines []string
}

func (r *recorded) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

func (r *recorded) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, strings.TrimSpace(string(p)))
	return len(p), nil
}
