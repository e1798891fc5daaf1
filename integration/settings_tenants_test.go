package integration

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

const (
	tenants       = 100
	rowsPerTenant = 3
)

// Of how many statements one has its connection killed, and of how many visits one has a
// context that ends. Each costs a new connection, so they are rarer among many.
var (
	oneKilled = int64(randomtest.Rounds(200, 4000))
	oneEnds   = randomtest.Rounds(20, 400)
)

// TestNoTenantSeesAnotherOnesRows has 16 programs (64 with pipelines) of 100 tenants share four connections (two),
// while contexts end at random and an administrator kills connections. The server decides
// which rows a statement sees, by the settings that are in force there: by a policy on
// PostgreSQL, by a view on MariaDB. A context without settings sees no row.
func TestNoTenantSeesAnotherOnesRows(t *testing.T) {
	t.Parallel()
	statements := int64(randomtest.Rounds(8_000, 1_000_000))
	onEachServer(t, func(t *testing.T, d database) {
		random := randomtest.Seeded(t)
		d.makeTenants(t)
		fronts := []tenantFront{{name: "New", share: 3. / 4}, {name: "Wrap", share: 1. / 4}}
		if d.kind == "postgres" {
			fronts = append(fronts, tenantFront{name: "pipelines", share: 1 / float64(randomtest.Rounds(16, 1))})
		}
		for _, f := range fronts {
			t.Run(f.name, func(t *testing.T) { f.run(t, d, int64(float64(statements)*f.share), random) })
		}
	})
}

// tenantFront is one way to the server, and its share of the statements.
type tenantFront struct {
	name  string
	share float64
}

func (f tenantFront) run(t *testing.T, on database, goal int64, random *rand.Rand) {
	t.Helper()
	connections := 4
	switch f.name {
	case "Wrap":
		on.wrap = true
	case "pipelines":
		on, connections = on.with("pool_pipeline=16"), 2 // so that reads wait
	}
	db, c := on.open(t, connections)
	h := &house{T: t, db: db, database: on, programs: 16}
	h.done = func() bool { return h.answered.Load() >= goal }
	if f.name == "pipelines" { // what else is answered is beside the goal
		h.programs = 64
		begun := time.Now()
		h.done = func() bool { // on a slow machine no text is short for long
			n := int64(c.Stats().Pipelined)
			return n >= goal || n > 0 && time.Since(begun) > slowMachine
		}
	}
	h.run(random)
	h.Logf("%d in pipelines", c.Stats().Pipelined)
	require.NoError(t, db.Close())
}

// makeTenants makes a table of notes of which a statement sees its tenant's. The account is
// no superuser, and a policy holds for the owner of the table, too.
func (d database) makeTenants(t *testing.T) {
	t.Helper()
	setup := d.openBare(t, 1)
	mustExec(t, setup, "CREATE TABLE all_notes (tenant varchar(20) NOT NULL, id integer NOT NULL, edits integer NOT NULL, PRIMARY KEY (tenant, id))")
	for tenant := range tenants {
		for id := range rowsPerTenant {
			mustExec(t, setup, d.say("INSERT INTO all_notes VALUES ($1, $2, 0)", "INSERT INTO all_notes VALUES (?, ?, 0)"), tenantName(tenant), id)
		}
	}
	if d.kind == "postgres" {
		var bypasses bool
		require.NoError(t, setup.QueryRow("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user").Scan(&bypasses))
		require.False(t, bypasses)
		mustExec(t, setup, "ALTER TABLE all_notes ENABLE ROW LEVEL SECURITY")
		mustExec(t, setup, "ALTER TABLE all_notes FORCE ROW LEVEL SECURITY")
		mustExec(t, setup, "CREATE POLICY own ON all_notes USING (tenant = current_setting('app.tenant', true))")
		mustExec(t, setup, "CREATE VIEW notes AS SELECT * FROM all_notes")
		mustExec(t, setup, "ALTER VIEW notes SET (security_invoker = on)")
	} else {
		mustExec(t, setup, "CREATE FUNCTION app_tenant() RETURNS varchar(20) NOT DETERMINISTIC NO SQL RETURN @`app.tenant`")
		mustExec(t, setup, "CREATE VIEW notes AS SELECT * FROM all_notes WHERE tenant = app_tenant()")
	}
	require.NoError(t, setup.Close())
}

func tenantName(tenant int) string { return fmt.Sprintf("it's %d", tenant) }

// house is a program with tenants.
type house struct {
	*testing.T
	database
	db       *sql.DB
	programs int
	done     func() bool

	answered, rows, others, failed, kills atomic.Int64
}

func (h *house) run(random *rand.Rand) {
	h.Helper()
	stop := randomtest.Watch(h.T, time.Duration(randomtest.Rounds(9, 120))*time.Minute)
	defer stop()
	over, end := context.WithCancel(h.Context())
	defer end()
	var killer, all sync.WaitGroup
	killer.Go(func() { h.kill(over) })
	for range h.programs {
		seed := random.Uint64()
		own := rand.New(rand.NewPCG(seed, seed))
		all.Go(func() {
			for !h.done() && !h.Failed() {
				h.visit(own)
			}
		})
	}
	all.Wait()
	end()
	killer.Wait()
	h.Logf("%d statements answered, %d rows, %d failed, %d connections killed", h.answered.Load(), h.rows.Load(), h.failed.Load(), h.kills.Load())
	require.Zero(h, h.others.Load(), "rows of another tenant")
	require.Positive(h, h.kills.Load())
	require.Positive(h, h.failed.Load())
}

// kill ends connections while statements run.
func (h *house) kill(over context.Context) {
	admin, err := h.account.Server.Admin()
	if err != nil {
		h.Error(err)
		return
	}
	for next := oneKilled; over.Err() == nil; next += oneKilled {
		for h.answered.Load() < next && over.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		var err error
		if h.kind == "postgres" {
			_, err = admin.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1 AND backend_type = 'client backend' ORDER BY random() LIMIT 1", h.account.User)
		} else {
			var id int64
			if admin.QueryRow("SELECT id FROM information_schema.processlist WHERE user = ? ORDER BY rand() LIMIT 1", h.account.User).Scan(&id) == nil {
				_, err = admin.Exec("KILL " + strconv.FormatInt(id, 10))
			}
		}
		if err == nil {
			h.kills.Add(1)
		}
	}
}

// visit is what a request does: some statements of one tenant, or of none.
func (h *house) visit(random *rand.Rand) {
	ctx, cancel := context.Background(), func() {}
	if random.IntN(oneEnds) == 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(3000))*time.Microsecond)
	}
	defer cancel()
	tenant := ""
	if random.IntN(8) > 0 {
		tenant = tenantName(random.IntN(tenants))
		ctx = tenantIs(ctx, tenant)
	}
	if random.IntN(3) == 0 {
		task, end := pooldriver.WithTask(ctx)
		defer end()
		ctx = task
	}
	switch random.IntN(6) {
	case 0, 1:
		h.read(ctx, h.db, tenant, random)
	case 2:
		h.write(ctx, h.db, tenant, random)
	case 3:
		h.transaction(ctx, tenant, random)
	case 4:
		h.conn(ctx, tenant, random)
	case 5: // a mistake in the middle
		_, err := h.db.ExecContext(ctx, "SELECT nonsense FROM notes")
		h.count(err, 0, 0)
		h.read(ctx, h.db, tenant, random)
	}
}

type via interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

func (h *house) read(ctx context.Context, v via, tenant string, random *rand.Rand) {
	text, args := "SELECT tenant FROM notes", []any(nil)
	if random.IntN(2) == 0 {
		text, args = h.say("SELECT tenant FROM notes WHERE id < $1", "SELECT tenant FROM notes WHERE id < ?"), []any{rowsPerTenant}
	}
	query := func() (*sql.Rows, error) { return v.QueryContext(ctx, text, args...) }
	if args != nil && random.IntN(3) == 0 {
		st, err := v.PrepareContext(ctx, text)
		if err != nil {
			h.count(err, 0, 0)
			return
		}
		defer st.Close()
		if random.IntN(2) == 0 { // a mistake: it is not sent
			_, err = st.ExecContext(ctx)
			h.count(err, 0, 0)
			if err == nil {
				h.Error("executed without its argument")
			}
		}
		if random.IntN(2) == 0 {
			args = []any{sql.NullInt64{Int64: rowsPerTenant, Valid: true}} // which runs code
		}
		query = func() (*sql.Rows, error) { return st.QueryContext(ctx, args...) }
	}
	rows, err := query()
	if err != nil {
		h.count(err, 0, 0)
		return
	}
	defer rows.Close()
	var own, others int64
	for rows.Next() {
		var seen string
		if rows.Scan(&seen) != nil {
			break
		}
		if seen == tenant {
			own++
		} else {
			others++
		}
	}
	h.count(rows.Err(), own, others)
	if want := int64(rowsPerTenant); rows.Err() == nil && own != want && tenant != "" {
		h.Errorf("tenant %q sees %d of its %d rows", tenant, own, want)
	}
}

// write changes all rows that it sees. The server tells how many.
func (h *house) write(ctx context.Context, v via, tenant string, random *rand.Rand) {
	text, args := "UPDATE notes SET edits = edits + 1", []any(nil)
	if random.IntN(2) == 0 {
		text, args = h.say("UPDATE notes SET edits = edits + $1", "UPDATE notes SET edits = edits + ?"), []any{1}
	}
	result, err := v.ExecContext(ctx, text, args...)
	if err != nil {
		h.count(err, 0, 0)
		return
	}
	changed, err := result.RowsAffected()
	want := int64(0)
	if tenant != "" {
		want = rowsPerTenant
	}
	h.count(err, changed, max(0, changed-want))
}

func (h *house) transaction(ctx context.Context, tenant string, random *rand.Rand) {
	tx, err := h.db.BeginTx(ctx, nil)
	if err != nil {
		h.count(err, 0, 0)
		return
	}
	defer tx.Rollback() // after Commit it does nothing
	inside := ctx
	if random.IntN(2) == 0 {
		inside = context.Background() // says nothing of settings
	}
	for range 1 + random.IntN(3) {
		h.read(inside, tx, tenant, random)
		if random.IntN(4) == 0 {
			h.write(inside, tx, tenant, random)
		}
	}
	if random.IntN(2) == 0 {
		_ = tx.Commit()
	}
}

// conn uses one connection for several tenants.
func (h *house) conn(ctx context.Context, tenant string, random *rand.Rand) {
	conn, err := h.db.Conn(ctx)
	if err != nil {
		h.count(err, 0, 0)
		return
	}
	defer conn.Close()
	h.read(ctx, conn, tenant, random)
	other := tenantName(random.IntN(tenants))
	h.read(tenantIs(ctx, other), conn, other, random)
	h.read(ctx, conn, tenant, random)
}

// count counts a statement.
func (h *house) count(err error, own, others int64) {
	if err != nil {
		h.failed.Add(1)
	} else {
		h.answered.Add(1)
	}
	h.rows.Add(own)
	h.others.Add(others)
}

func (d database) say(postgres, mysql string) string {
	if d.kind == "postgres" {
		return postgres
	}
	return mysql
}
