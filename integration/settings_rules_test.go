package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/byteproxy"
)

// settled is a pool of one connection, whose statements tell what settings they have.
type settled struct {
	*testing.T
	database
	*sql.DB
}

// onEachSetter runs the test on every server, by New, with deferred begin, and by Wrap.
func onEachSetter(t *testing.T, test func(s settled), options ...pooldriver.Option) {
	t.Helper()
	t.Parallel()
	onEachServer(t, func(t *testing.T, d database) {
		for _, name := range []string{"New", "New, deferred begin", "Wrap"} {
			t.Run(name, func(t *testing.T) {
				on := d
				on.wrap = name == "Wrap"
				db, _ := on.open(t, 1, append(options, func(c *pooldriver.Config) { c.LazyBegin = name == "New, deferred begin" })...)
				test(settled{t, on, db})
				require.NoError(t, db.Close())
			})
		}
	})
}

// see is a query for a setting, empty if it is not set.
func (s settled) see(name string) string {
	return s.say("SELECT coalesce(current_setting('"+name+"', true), '')", "SELECT coalesce(@`"+name+"`, '')")
}

type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (s settled) requireTenant(ctx context.Context, q rowQuerier, want string) {
	s.Helper()
	var seen string
	require.NoError(s, q.QueryRowContext(ctx, s.see("app.tenant")).Scan(&seen))
	require.Equal(s, want, seen)
}

func TestATransactionHasTheSettingsOfItsBeginning(t *testing.T) {
	onEachSetter(t, func(s settled) {
		none := s.Context()
		a, b := tenantIs(none, "a"), tenantIs(none, `it's "b" \`)
		for _, commit := range []bool{true, false} {
			tx, err := s.BeginTx(a, nil)
			require.NoError(s, err)
			s.requireTenant(none, tx, "a")
			_, err = tx.ExecContext(b, "SELECT 1")
			require.ErrorContains(s, err, "began with other settings")
			s.requireTenant(a, tx, "a")
			if commit {
				require.NoError(s, tx.Commit())
			} else {
				require.NoError(s, tx.Rollback())
			}
			s.requireTenant(none, s, "")
			s.requireTenant(b, s, `it's "b" \`)
			tx, err = s.BeginTx(none, nil)
			require.NoError(s, err)
			s.requireTenant(none, tx, "")
			_, err = tx.ExecContext(a, "SELECT 1")
			require.ErrorContains(s, err, "began with other settings")
			require.NoError(s, tx.Rollback())
		}
	})
}

func TestSettingsOutliveWhatIsRolledBackInsideTheirTransaction(t *testing.T) {
	onEachSetter(t, func(s settled) {
		ctx, end := pooldriver.WithTask(tenantIs(s.Context(), "a"))
		defer end()
		outer, err := s.BeginTx(ctx, nil)
		require.NoError(s, err)
		inner, err := s.BeginTx(ctx, nil)
		require.NoError(s, err)
		s.requireTenant(ctx, inner, "a")
		require.NoError(s, inner.Rollback())
		s.requireTenant(ctx, outer, "a")
		inner, err = s.BeginTx(ctx, nil)
		require.NoError(s, err)
		_, err = inner.Exec("nonsense")
		require.Error(s, err)
		require.NoError(s, inner.Rollback())
		s.requireTenant(ctx, s, "a")
		require.NoError(s, outer.Commit())
	})
}

// TestAStatementThatIsNotSentLeavesItsSettingsToNobody has a statement fail behind the
// point where its settings were looked up.
func TestAStatementThatIsNotSentLeavesItsSettingsToNobody(t *testing.T) {
	onEachSetter(t, func(s settled) {
		none, a := s.Context(), tenantIs(s.Context(), "a")
		fail := func(ctx context.Context, st *sql.Stmt) {
			s.Helper()
			_, err := st.ExecContext(ctx)
			require.ErrorContains(s, err, "expected 1 arguments, got 0")
		}
		text := s.say("SELECT $1::text", "SELECT ?")
		st, err := s.Prepare(text)
		require.NoError(s, err)
		fail(a, st)
		s.requireTenant(none, s, "")
		fail(a, st)
		tx, err := s.Begin()
		require.NoError(s, err)
		s.requireTenant(none, tx, "")
		require.NoError(s, tx.Commit())
		require.NoError(s, st.Close())

		// In a transaction they wait for one that is sent.
		tx, err = s.BeginTx(a, nil)
		require.NoError(s, err)
		st, err = tx.PrepareContext(a, text)
		require.NoError(s, err)
		fail(a, st)
		_, err = tx.ExecContext(a, s.say("-- nothing", "DO 0"))
		require.NoError(s, err)
		s.requireTenant(none, tx, "a")
		require.NoError(s, tx.Commit())
		s.requireTenant(none, s, "")
	})
}

// TestATransactionWhoseFirstArgumentRunsCodeHasItsSettings: the task's session is free
// while the argument is converted.
func TestATransactionWhoseFirstArgumentRunsCodeHasItsSettings(t *testing.T) {
	onEachSetter(t, func(s settled) {
		require.NoError(s, pooldriver.InTx(tenantIs(s.Context(), "a"), s.DB, nil, func(ctx context.Context, tx *sql.Tx) error {
			see := s.see("app.tenant") + s.say(" WHERE $1 = 1", " FROM DUAL WHERE ? = 1")
			st, err := tx.PrepareContext(ctx, see)
			require.NoError(s, err)
			defer st.Close()
			var seen string
			require.NoError(s, st.QueryRowContext(ctx, sql.NullInt64{Int64: 1, Valid: true}).Scan(&seen))
			require.Equal(s, "a", seen)
			s.requireTenant(ctx, tx, "a")
			return nil
		}))
	})
}

func TestATransactionByHandHasTheSettingsOfItsBegin(t *testing.T) {
	onEachSetter(t, func(s settled) {
		none, a := s.Context(), tenantIs(s.Context(), "a")
		conn, err := s.Conn(none)
		require.NoError(s, err)
		defer conn.Close()
		execute := func(ctx context.Context, text string) {
			s.Helper()
			_, err := conn.ExecContext(ctx, text)
			require.NoError(s, err, text)
		}
		execute(a, s.say("BEGIN ISOLATION LEVEL SERIALIZABLE", "BEGIN"))
		s.requireTenant(none, conn, "a")
		_, err = conn.ExecContext(tenantIs(none, "b"), "SELECT 1")
		require.ErrorContains(s, err, "began with other settings")
		execute(none, "COMMIT AND CHAIN")
		s.requireTenant(none, conn, "a")
		execute(none, "SAVEPOINT here")
		s.requireTenant(none, conn, "a")
		execute(none, "ROLLBACK TO SAVEPOINT here")
		s.requireTenant(none, conn, "a")
		execute(none, "ROLLBACK")
		s.requireTenant(none, conn, "")
	})
}

// TestTheContextCountsMoreThanAStatementThatSets shows what becomes of a program's own SET.
func TestTheContextCountsMoreThanAStatementThatSets(t *testing.T) {
	onEachSetter(t, func(s settled) {
		none, a := s.Context(), tenantIs(s.Context(), "a")
		conn, err := s.Conn(none)
		require.NoError(s, err)
		set := s.say("SET app.tenant = 'mine'", "SET @`app.tenant` = 'mine'")
		for _, ctx := range []context.Context{none, a} {
			_, err = conn.ExecContext(ctx, set)
			require.NoError(s, err)
			s.requireTenant(a, conn, "a")
		}
		tx, err := conn.BeginTx(a, nil)
		require.NoError(s, err)
		s.requireTenant(none, tx, "a")
		_, err = tx.Exec(set)
		require.NoError(s, err)
		want := "mine"
		if s.kind == "postgres" && !s.wrap {
			want = "a"
		}
		s.requireTenant(a, tx, want)
		require.NoError(s, tx.Rollback())
		s.requireTenant(a, conn, "a")
		require.NoError(s, conn.Close())
		s.requireTenant(none, s, "")
	})
}

func TestSettingsReachAFunctionOfRaw(t *testing.T) {
	onEachSetter(t, func(s settled) {
		none, a := s.Context(), tenantIs(s.Context(), "a")
		seen := func(conn *sql.Conn, ctx context.Context) (value driver.Value) {
			require.NoError(s, pooldriver.Raw(ctx, conn, func(dc driver.Conn) error {
				rows, err := dc.(driver.QueryerContext).QueryContext(none, s.see("app.tenant"), nil)
				if err != nil {
					return err
				}
				defer rows.Close()
				dest := make([]driver.Value, 1)
				err = rows.Next(dest)
				if b, ok := dest[0].([]byte); ok {
					dest[0] = string(b)
				}
				value = dest[0]
				return err
			}))
			return value
		}
		conn, err := s.Conn(none)
		require.NoError(s, err)
		require.Equal(s, "a", seen(conn, a))
		require.Equal(s, "", seen(conn, none))
		tx, err := conn.BeginTx(a, nil)
		require.NoError(s, err)
		require.Equal(s, "a", seen(conn, none))
		require.NoError(s, tx.Rollback())
		require.Equal(s, "a", seen(conn, a))
		require.NoError(s, conn.Close())
		s.requireTenant(none, s, "")
	})
}

// TestSettingsPinNothing: the pool has one connection.
func TestSettingsPinNothing(t *testing.T) {
	onEachSetter(t, func(s settled) {
		a := pooldriver.WithSettings(s.Context(), pooldriver.Settings{"app.tenant": "outer", "app.user": "u"})
		a, end := pooldriver.WithTask(tenantIs(a, "a"))
		defer end()
		ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
		defer cancel()
		for range 3 {
			s.requireTenant(a, s, "a")
			var user string
			require.NoError(s, s.QueryRowContext(a, s.see("app.user")).Scan(&user))
			require.Equal(s, "u", user)
			s.requireTenant(ctx, s, "")
			s.requireTenant(tenantIs(ctx, "b"), s, "b")
		}
	})
}

// TestWhatAConnectionBeganWithIsThereAfterSettings where AfterConnect has set it.
func TestWhatAConnectionBeganWithIsThereAfterSettings(t *testing.T) {
	onEachSetter(t, func(s settled) {
		if s.kind != "postgres" {
			return // a user variable is NULL afterwards, see docs/settings-by-context.md
		}
		none, a := s.Context(), tenantIs(s.Context(), "a")
		for range 2 {
			s.requireTenant(none, s, "home")
			s.requireTenant(a, s, "a")
			s.requireTenant(tenantIs(none, "b"), s, "b")
		}
	}, func(c *pooldriver.Config) {
		c.AfterConnect = func(ctx context.Context, dc driver.Conn) error {
			if _, ok := dc.(*stdlib.Conn); !ok {
				return nil
			}
			_, err := dc.(driver.ExecerContext).ExecContext(ctx, "SET app.tenant = 'home'", nil)
			return err
		}
	})
}

// TestNoErrorShowsAValue: settings that the server refuses, and that are refused before.
func TestNoErrorShowsAValue(t *testing.T) {
	onEachSetter(t, func(s settled) {
		refused := func(settings pooldriver.Settings) string {
			s.Helper()
			ctx := pooldriver.WithSettings(s.Context(), settings)
			_, err := s.ExecContext(ctx, "SELECT 1")
			require.Error(s, err)
			require.NotContains(s, err.Error(), "secret")
			_, query := s.ExecContext(ctx, s.say("SELECT $1::int", "SELECT ?"), 1)
			require.Error(s, query)
			require.NotContains(s, query.Error(), "secret")
			s.requireTenant(s.Context(), s, "")
			s.requireTenant(tenantIs(s.Context(), "a"), s, "a")
			return err.Error()
		}
		require.Contains(s, refused(pooldriver.Settings{"app.tenant": "secret \xff"}), "not UTF-8")
		require.Contains(s, refused(pooldriver.Settings{"app.tenant": "secret \x00"}), "zero byte")
		require.Contains(s, refused(pooldriver.Settings{"App.Tenant": "secret"}), `"App.Tenant" is not the name`)
		require.Contains(s, refused(pooldriver.Settings{"x.y; DROP": "secret"}), "is not the name")
		require.Contains(s, refused(pooldriver.Settings{"search_path": "secret"}), `"search_path" is not allowed`)
		require.Contains(s, refused(pooldriver.Settings{"role": "secret"}), `"role" is not allowed`)
		if s.kind == "postgres" {
			text := refused(pooldriver.Settings{"statement_timeout": "secret"})
			require.Contains(s, text, "refuses one of the settings statement_timeout")
			require.Contains(s, text, "22023")
			tx, err := s.BeginTx(tenantIs(s.Context(), "a"), nil)
			require.NoError(s, err)
			s.requireTenant(s.Context(), tx, "a")
			require.NoError(s, tx.Rollback())
		}
	})
}

func TestPostgresParametersAreSettings(t *testing.T) {
	onEachSetter(t, func(s settled) {
		if s.kind != "postgres" {
			return
		}
		ctx := pooldriver.WithSettings(s.Context(), pooldriver.Settings{
			"statement_timeout": "1h", "application_name": "billing", "timezone": "Asia/Tokyo", "work_mem": "5MB",
			"lock_timeout": "1s", "idle_in_transaction_session_timeout": "1h", "transaction_timeout": "1h",
		})
		const see = "SELECT concat_ws(' ', current_setting('application_name'), current_setting('timezone'), current_setting('work_mem'))"
		var none, seen, after string
		require.NoError(s, s.QueryRow(see).Scan(&none))
		require.NoError(s, s.QueryRowContext(ctx, see).Scan(&seen))
		require.Equal(s, "billing Asia/Tokyo 5MB", seen)
		ctx = pooldriver.WithSettings(s.Context(), pooldriver.Settings{"statement_timeout": "100ms"})
		for text, args := range map[string][]any{"SELECT pg_sleep(60)": nil, "SELECT pg_sleep($1)": {60}} {
			_, err := s.ExecContext(ctx, text, args...)
			var refused *pgconn.PgError
			require.ErrorAs(s, err, &refused)
			require.Equal(s, "57014", refused.Code)
			require.Contains(s, refused.Message, "statement timeout")
		}
		_, err := s.Exec("SELECT pg_sleep(0.2)")
		require.NoError(s, err)
		require.NoError(s, s.QueryRow(see).Scan(&after))
		require.Equal(s, none, after)
	})
}

// TestSettingsThatAreInForceCostNoRoundTrip where each change of them costs one.
func TestSettingsThatAreInForceCostNoRoundTrip(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, d database) {
		for _, wrap := range []bool{false, true} {
			if d.kind == "postgres" && !wrap {
				continue // TestPostgresSettingsNeedNoRoundTrip
			}
			proxy, err := byteproxy.Listen(d.account.Addr)
			require.NoError(t, err)
			on := database{kind: d.kind, account: d.account.Via(proxy.Addr()), wrap: wrap}
			db, _ := on.open(t, 1)
			last, pause := time.Now(), time.Duration(0)
			trips := func(ctx context.Context) int {
				proxy.Count()
				_, err := db.ExecContext(ctx, "SELECT 1")
				require.NoError(t, err)
				pause = max(pause, time.Since(last))
				last = time.Now()
				return proxy.RoundTrips()
			}
			ways := []context.Context{
				tenantIs(t.Context(), "a"), tenantIs(t.Context(), "a"), tenantIs(t.Context(), "b"), t.Context(), t.Context(), tenantIs(t.Context(), "b"),
			}
			for try := 0; ; try++ {
				require.Less(t, try, mostTries)
				for range 2 {
					trips(t.Context()) // pgx pings at the first reset of a connection
				}
				pause = 0
				none := trips(t.Context())
				var more []int
				for _, ctx := range ways {
					more = append(more, trips(ctx)-none)
				}
				if pause < time.Second/2 { // else a connection that was idle for long was asked, which is a round trip, too
					require.Equal(t, []int{1, 0, 1, 1, 0, 1}, more, "wrap: %v", wrap)
					break
				}
			}
			require.NoError(t, db.Close())
			require.NoError(t, proxy.Close())
		}
	})
}
