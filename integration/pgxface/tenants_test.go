package pgxface

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

const (
	tenants       = 50
	rowsPerTenant = 3

	seeAll   = "SELECT tenant FROM notes"
	seeBelow = "SELECT tenant FROM notes WHERE id < $1"
	seeInOne = "SELECT coalesce(string_agg(tenant, '|'), '') FROM notes"

	refusedByPolicy = "42501"
	copyRefused     = "0A000"
)

// Of how many reads one has a connection killed, and of how many visits one has a context that ends. Each costs a new
// connection, so they are rarer among many.
var (
	oneKilled = int64(randomtest.Rounds(100, 2000))
	oneEnds   = randomtest.Rounds(20, 400)
)

// TestNoTenantSeesAnotherOnesRowsByEitherFace has 16 goroutines of 50 tenants use both faces of one pool, while contexts
// end and connections are killed. The server decides which rows a statement sees and writes, by the policy that
// docs/settings-by-context.md shows.
func TestNoTenantSeesAnotherOnesRowsByEitherFace(t *testing.T) {
	t.Parallel()
	forms := []string{"pool_max_conns=2", "pool_max_conns=4", "pool_max_conns=4&pool_pipeline=16"}
	goal := int64(randomtest.Rounds(6_000, 1_000_000) / len(forms))
	for _, form := range forms {
		t.Run(form, func(t *testing.T) {
			random := randomtest.Seeded(t)
			b := open(t, form)
			b.makeNotes(t)
			h := &house{T: t, both: b, goal: goal, pipelines: strings.Contains(form, "pipeline")}
			h.run(random)
			b.atRest(t)
			pipelined := b.connector.Stats().Pipelined
			h.Logf("%d reads, %d rows, %d writes of others refused, %d calls failed, %d connections killed, %d queries in pipelines",
				h.reads.Load(), h.rows.Load(), h.refused.Load(), h.failed.Load(), h.kills.Load(), pipelined)
			h.requireKept()
			require.Equal(t, h.pipelines, pipelined > 0)
		})
	}
}

// TestAPgxpoolThatIsNotCleanedShowsTheRowsOfOthers is the control: the same visits, over pgxpool with a hook that sets the
// tenant and never takes it back.
func TestAPgxpoolThatIsNotCleanedShowsTheRowsOfOthers(t *testing.T) {
	t.Parallel()
	random := randomtest.Seeded(t)
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	both{Account: account}.makeNotes(t)
	config, err := pgxpool.ParseConfig(account.URL("pool_max_conns=2"))
	require.NoError(t, err)
	config.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
		if tenant, ok := ctx.Value(tenantKey{}).(string); ok {
			_, err := conn.Exec(ctx, setTenant, tenant)
			return err == nil, err
		}
		return true, nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	h := &house{T: t, bare: true}
	for range 200 {
		h.newVisit(t.Context(), random).byPgx(pool)
	}
	require.Positive(t, h.violations.Load())
	t.Logf("%d violations, the first: %s", h.violations.Load(), *h.first.Load())
}

// TestCopyingIntoATableWithAPolicy as the page says.
func TestCopyingIntoATableWithAPolicy(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.makeNotes(t)
	as := func(tenant int) context.Context {
		return pooldriver.WithSettings(t.Context(), pooldriver.Settings{"app.tenant": tenantName(tenant)})
	}
	copyAs := func(tenant int) error {
		ctx, row := as(tenant), [][]any{{tenantName(1), int32(rowsPerTenant), int32(0)}}
		return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "CREATE TEMPORARY TABLE arrived (LIKE notes) ON COMMIT DROP")
			require.NoError(t, err)
			_, err = tx.CopyFrom(ctx, pgx.Identifier{"arrived"}, []string{"tenant", "id", "edits"}, pgx.CopyFromRows(row))
			require.NoError(t, err)
			_, err = tx.Exec(ctx, "INSERT INTO notes SELECT * FROM arrived")
			return err
		})
	}
	_, err := b.pool.CopyFrom(as(1), pgx.Identifier{"notes"}, []string{"tenant"}, pgx.CopyFromRows(nil))
	require.True(t, hasState(err, copyRefused), "%v", err)
	require.NoError(t, copyAs(1))
	require.True(t, hasState(copyAs(2), refusedByPolicy))
	require.Equal(t, rowsPerTenant+1, ask[int](as(1), t, b.pool, "SELECT count(*) FROM notes"))
}

// makeNotes makes a table with notes of each tenant, under the recipe of the page. The account owns it, and is no superuser.
func (b both) makeNotes(t *testing.T) {
	t.Helper()
	setup := b.OpenBare(t)
	execute := func(text string, args ...any) {
		t.Helper()
		_, err := setup.ExecContext(t.Context(), text, args...)
		require.NoError(t, err)
	}
	require.False(t, askDB[bool](t.Context(), t, setup, "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"))
	execute("CREATE TABLE notes (tenant text NOT NULL, id int NOT NULL, edits int NOT NULL, PRIMARY KEY (tenant, id))")
	for tenant := range tenants {
		execute("INSERT INTO notes SELECT $1, g, 0 FROM generate_series(0, $2::int - 1) g", tenantName(tenant), rowsPerTenant)
	}
	execute(recipe(t))
	require.Zero(t, askDB[int](t.Context(), t, setup, "SELECT count(*) FROM notes"))
	execute("CREATE TABLE copied (tenant text NOT NULL, at_server text DEFAULT current_setting('app.tenant', true))")
}

// recipe is the SQL for PostgreSQL on the page.
func recipe(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/settings-by-context.md")
	require.NoError(t, err)
	_, after, found := strings.Cut(string(page), "```sql\n-- PostgreSQL")
	text, _, ended := strings.Cut(after, "\n\n")
	require.True(t, found && ended)
	return "-- PostgreSQL" + text
}

func tenantName(tenant int) string { return fmt.Sprintf("it's %d", tenant) }

type tenantKey struct{} // of the control

const setTenant = "SELECT set_config('app.tenant', $1, false)"

// house is a program with tenants.
type house struct {
	*testing.T
	both
	bare      bool  // the control: there is no pool of ours
	pipelines bool  // the pool has them
	goal      int64 // reads

	reads, rows, refused, copies, failed, unexplained, kills, violations atomic.Int64

	first atomic.Pointer[string] // the first violation
	odd   atomic.Pointer[error]  // an unexplained error
}

func (h *house) run(random *rand.Rand) {
	h.Helper()
	stop := randomtest.Watch(h.T, time.Duration(randomtest.Rounds(3, 60))*time.Minute)
	defer stop()
	over, end := context.WithCancel(h.Context())
	defer end()
	var killer, all sync.WaitGroup
	killer.Go(func() { h.kill(over) })
	for range 16 {
		own := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
		all.Go(func() {
			for h.reads.Load() < h.goal && h.violations.Load() == 0 {
				h.visit(own)
			}
		})
	}
	all.Wait()
	end()
	killer.Wait()
}

// requireKept requires that nobody has seen or written what is not his, and that this was tried.
func (h *house) requireKept() {
	h.Helper()
	if first := h.first.Load(); first != nil {
		h.Fatalf("%d violations, the first: %s", h.violations.Load(), *first)
	}
	ctx := h.Context()
	witness := h.Witness(h.T)
	require.Equal(h.T, tenants*rowsPerTenant, askDB[int](ctx, h.T, witness, "SELECT count(*) FROM notes"))
	require.Zero(h.T, askDB[int](ctx, h.T, witness, "SELECT count(*) FROM copied WHERE tenant <> coalesce(at_server, '')"))
	require.EqualValues(h.T, askDB[int](ctx, h.T, witness, "SELECT count(*) FROM copied"), h.copies.Load())
	for _, n := range []*atomic.Int64{&h.refused, &h.copies, &h.failed, &h.kills} {
		require.Positive(h.T, n.Load())
	}
	// A connection that was killed fails at most the calls of its visit, or of the queries in its pipeline.
	if n := h.unexplained.Load(); n > 32*h.kills.Load() {
		h.Fatalf("%d calls failed without a reason, one by: %v", n, *h.odd.Load())
	}
}

// kill ends connections while statements run.
func (h *house) kill(over context.Context) {
	admin, err := h.Server.Admin()
	if err != nil {
		h.Error(err)
		return
	}
	for next := oneKilled; over.Err() == nil; next += oneKilled {
		for h.reads.Load() < next && over.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		if _, err := admin.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1 AND backend_type = 'client backend' ORDER BY random() LIMIT 1", h.User); err == nil {
			h.kills.Add(1)
		}
	}
}

// visit is what a request does as one tenant, or as none.
type visit struct {
	*house
	random *rand.Rand
	base   context.Context // says nothing of the tenant
	ctx    context.Context
	tenant string // empty: none
	inTask bool
}

func (h *house) newVisit(base context.Context, random *rand.Rand) visit {
	v := visit{house: h, random: random, base: base}
	if random.IntN(4) == 0 {
		return v.as("")
	}
	return v.as(tenantName(random.IntN(tenants)))
}

// as returns v as another tenant.
func (v visit) as(tenant string) visit {
	v.tenant, v.ctx = tenant, v.base
	switch {
	case tenant == "":
	case v.bare:
		v.ctx = context.WithValue(v.base, tenantKey{}, tenant)
	default:
		v.ctx = pooldriver.WithSettings(v.base, pooldriver.Settings{"app.tenant": tenant})
	}
	return v
}

func (h *house) visit(random *rand.Rand) {
	ctx, cancel := h.Context(), func() {}
	if random.IntN(oneEnds) == 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(3000))*time.Microsecond)
	}
	defer cancel()
	v := h.newVisit(ctx, random)
	if h.pipelines && random.IntN(2) == 0 { // between those with settings
		v = v.as("")
		v.read(v.ctx, sqlHandle{h.db})
		return
	}
	if random.IntN(3) > 0 {
		v.step()
		return
	}
	_ = pooldriver.Do(ctx, func(ctx context.Context) error {
		v.base, v.inTask = ctx, true
		for range 1 + random.IntN(4) {
			v.as(v.tenant).step()
		}
		return nil
	})
}

func (v visit) step() {
	byDB := sqlHandle{v.db}
	switch v.random.IntN(12) {
	case 0, 1:
		v.read(v.ctx, byDB)
	case 2:
		v.write(v.ctx, byDB)
	case 3:
		v.trespass(v.ctx, byDB)
	case 4:
		v.sqlTx()
	case 5:
		v.sqlConn()
	case 6:
		v.acquire()
	case 7:
		v.copyTo(v.pool)
	default:
		v.byPgx(v.pool)
	}
}

func (v visit) byPgx(f face) {
	switch h := (pgxHandle{f}); v.random.IntN(6) {
	case 0:
		v.write(v.ctx, h)
	case 1:
		v.trespass(v.ctx, h)
	case 2:
		v.pgxTx(f)
	default:
		v.read(v.ctx, h)
	}
}

// read looks at all notes.
func (v visit) read(ctx context.Context, h handle) {
	lists, err := h.see(ctx, v.random)
	want := 0
	if v.tenant != "" {
		want = rowsPerTenant
	}
	for _, list := range lists {
		v.rows.Add(int64(len(list)))
		for _, tenant := range list {
			if tenant != v.tenant {
				v.violated("%q sees a row of %q", v.tenant, tenant)
			}
		}
		if err == nil && len(list) != want {
			v.violated("%q sees %d of its %d rows", v.tenant, len(list), want)
		}
	}
	if err != nil {
		v.fail(err)
		return
	}
	v.reads.Add(1)
}

// write changes a row of the tenant; without one it changes nothing.
func (v visit) write(ctx context.Context, h handle) {
	n, err := h.exec(ctx, v.random, "UPDATE notes SET edits = edits + 1 WHERE id = $1", v.random.IntN(rowsPerTenant))
	switch {
	case err != nil:
		v.fail(err)
	case n != 1 && v.tenant != "" || n != 0 && v.tenant == "":
		v.violated("%q changes %d rows", v.tenant, n)
	}
}

// trespass writes a row for another tenant, or for none, which the policy refuses.
func (v visit) trespass(ctx context.Context, h handle) {
	other := tenantName(v.random.IntN(tenants))
	if other == v.tenant || v.random.IntN(4) == 0 {
		other = ""
	}
	text, id := "INSERT INTO notes VALUES ($1, $2, 0)", 1000+v.random.IntN(1e9)
	if v.tenant != "" && v.random.IntN(2) == 0 {
		text, id = "UPDATE notes SET tenant = $1 WHERE id = $2", v.random.IntN(rowsPerTenant)
	}
	switch n, err := h.exec(ctx, v.random, text, other, id); {
	case err == nil:
		v.violated("%q writes %d rows of %q", v.tenant, n, other)
	case hasState(err, refusedByPolicy):
		v.refused.Add(1)
	default:
		v.fail(err)
	}
}

func hasState(err error, state string) bool {
	var of *pgconn.PgError
	return errors.As(err, &of) && of.Code == state
}

// copyTo copies a row into a table whose other column is the server's own view of the tenant. PostgreSQL copies no rows
// into a table with a policy.
func (v visit) copyTo(f face) {
	table := "copied"
	if v.random.IntN(3) == 0 {
		table = "notes"
	}
	n, err := f.CopyFrom(v.ctx, pgx.Identifier{table}, []string{"tenant"}, pgx.CopyFromRows([][]any{{v.tenant}}))
	switch {
	case err == nil && table == "notes":
		v.violated("%q copies %d rows", v.tenant, n)
	case err == nil:
		v.copies.Add(n)
	case table == "copied" || !hasState(err, copyRefused):
		v.fail(err)
	}
}

func (v visit) sqlTx() {
	tx, err := v.db.BeginTx(v.ctx, nil)
	if err != nil {
		v.fail(err)
		return
	}
	defer tx.Rollback() // after Commit it does nothing
	v.inside(sqlHandle{tx}, tx.Commit)
}

func (v visit) pgxTx(f face) {
	tx, err := f.Begin(v.ctx)
	if err != nil {
		v.fail(err)
		return
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	v.inside(pgxHandle{tx}, func() error { return tx.Commit(v.ctx) })
}

// inside works in a transaction.
func (v visit) inside(h handle, commit func() error) {
	ctx := v.ctx
	if v.random.IntN(2) == 0 {
		ctx = v.Context() // says nothing of settings
	}
	v.read(ctx, h)
	if v.random.IntN(3) == 0 {
		v.write(ctx, h)
	}
	if v.inTask && v.random.IntN(2) == 0 { // in the same transaction, by the other face
		v.read(v.ctx, sqlHandle{v.db})
		v.read(v.ctx, pgxHandle{v.pool})
	}
	switch v.random.IntN(3) {
	case 0:
		v.trespass(ctx, h)
	case 1:
		if err := commit(); err != nil {
			v.fail(err)
		}
	}
}

func (v visit) sqlConn() {
	c, err := v.db.Conn(v.ctx)
	if err != nil {
		v.fail(err)
		return
	}
	defer c.Close()
	v.several(sqlHandle{c})
}

// acquire uses a connection of pgx's API, and sometimes the lent one of pgx, on which nothing is seen.
func (v visit) acquire() {
	c, err := v.pool.Acquire(v.ctx)
	if err != nil {
		v.fail(err)
		return
	}
	defer c.Release()
	switch v.random.IntN(4) {
	case 0:
		if lent := c.Conn(); lent != nil {
			alone := v
			alone.inTask = false // the task has to wait for Release
			alone.byPgx(lent)
			v.byHand(pgxHandle{lent})
		}
	case 1:
		v.pgxTx(c)
	default:
		v.several(pgxHandle{c})
	}
}

// several uses one connection as several tenants.
func (v visit) several(h handle) {
	v.read(v.ctx, h)
	other := v.as(tenantName(v.random.IntN(tenants)))
	other.read(other.ctx, h)
	v.read(v.ctx, h)
	v.byHand(h)
}

// byHand sets the tenant on the session, and leaves it there. A task has its session for longer.
func (v visit) byHand(h handle) {
	if v.inTask || v.random.IntN(2) == 0 {
		return
	}
	tenant := tenantName(v.random.IntN(tenants))
	if _, err := h.exec(v.base, v.random, setTenant, tenant); err != nil {
		v.fail(err)
		return
	}
	v.tenant = tenant
	v.read(v.base, h)
}

func (v visit) fail(err error) {
	v.failed.Add(1)
	if v.base.Err() == nil {
		v.unexplained.Add(1)
		v.odd.Store(&err)
	}
}

func (h *house) violated(format string, args ...any) {
	h.violations.Add(1)
	text := fmt.Sprintf(format, args...)
	h.first.CompareAndSwap(nil, &text)
}

// handle is a pool, a connection or a transaction of either face.
type handle interface {
	// see returns the tenants of the notes that it sees, once or several times.
	see(ctx context.Context, random *rand.Rand) ([][]string, error)
	exec(ctx context.Context, random *rand.Rand, text string, args ...any) (rows int64, err error)
}

type sqlHandle struct {
	of interface {
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
		PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
	}
}

func (h sqlHandle) see(ctx context.Context, random *rand.Rand) ([][]string, error) {
	query := func() (*sql.Rows, error) { return h.of.QueryContext(ctx, seeAll) }
	switch random.IntN(3) {
	case 0:
		query = func() (*sql.Rows, error) { return h.of.QueryContext(ctx, seeBelow, rowsPerTenant) }
	case 1:
		st, err := h.of.PrepareContext(ctx, seeBelow)
		if err != nil {
			return nil, err
		}
		defer st.Close()
		query = func() (*sql.Rows, error) { return st.QueryContext(ctx, rowsPerTenant) }
	}
	rows, err := query()
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var seen []string
	for rows.Next() {
		var tenant string
		if err := rows.Scan(&tenant); err != nil {
			return [][]string{seen}, err
		}
		seen = append(seen, tenant)
	}
	return [][]string{seen}, rows.Err()
}

func (h sqlHandle) exec(ctx context.Context, random *rand.Rand, text string, args ...any) (int64, error) {
	do := func() (sql.Result, error) { return h.of.ExecContext(ctx, text, args...) }
	if random.IntN(3) == 0 {
		st, err := h.of.PrepareContext(ctx, text)
		if err != nil {
			return 0, err
		}
		defer st.Close()
		do = func() (sql.Result, error) { return st.ExecContext(ctx, args...) }
	}
	result, err := do()
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

type pgxHandle struct{ of face }

// anyMode is one of pgx's five ways to execute a text.
func anyMode(random *rand.Rand) pgx.QueryExecMode { return pgx.QueryExecMode(1 + random.IntN(5)) }

func (h pgxHandle) see(ctx context.Context, random *rand.Rand) ([][]string, error) {
	switch random.IntN(4) {
	case 0:
		var all string
		err := h.of.QueryRow(ctx, seeInOne, anyMode(random)).Scan(&all)
		return [][]string{strings.FieldsFunc(all, func(r rune) bool { return r == '|' })}, err
	case 1:
		return h.seeByBatch(ctx)
	}
	rows, err := h.of.Query(ctx, seeBelow, anyMode(random), rowsPerTenant)
	if err != nil {
		return nil, err
	}
	seen, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return [][]string{seen}, err
}

func (h pgxHandle) seeByBatch(ctx context.Context) (lists [][]string, err error) {
	var b pgx.Batch
	collect := func(rows pgx.Rows) error {
		seen, err := pgx.CollectRows(rows, pgx.RowTo[string])
		lists = append(lists, seen)
		return err
	}
	b.Queue(seeAll).Query(collect)
	b.Queue(seeBelow, rowsPerTenant).Query(collect)
	err = h.of.SendBatch(ctx, &b).Close()
	return lists, err
}

func (h pgxHandle) exec(ctx context.Context, random *rand.Rand, text string, args ...any) (int64, error) {
	if random.IntN(4) == 0 {
		var b pgx.Batch
		b.Queue(text, args...)
		results := h.of.SendBatch(ctx, &b)
		tag, err := results.Exec()
		return tag.RowsAffected(), errors.Join(err, results.Close())
	}
	tag, err := h.of.Exec(ctx, text, append([]any{anyMode(random)}, args...)...)
	return tag.RowsAffected(), err
}
