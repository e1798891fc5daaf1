package conformance

import (
	"database/sql"
	"strconv"
	"strings"
	"sync"

	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

var prepareCases = []Case{
	{"StatementsAreReused", 0, func(e *Env) {
		e.Table("t", "a INT, b TEXT")
		insert := e.Prepare(e.DB, "INSERT INTO t VALUES (?, ?)")
		for i, s := range []string{"one", "two", "three"} {
			res, err := insert.Exec(i, s)
			e.Result("insert", res, err)
		}
		e.Err("close", insert.Close())
		find := e.Prepare(e.DB, "SELECT b FROM t WHERE a = ?")
		for i := range 4 {
			var b string
			err := find.QueryRow(i).Scan(&b)
			e.Value("find", b, err)
		}
		e.Err("close", find.Close())
	}},
	{"ClosedStatementsHaveTheirErrors", 0, func(e *Env) {
		s := e.Prepare(e.DB, "SELECT 1")
		e.Err("close", s.Close())
		e.Err("close again", s.Close())
		_, err := s.Exec()
		e.Err("exec", err)
		_, err = s.Query()
		e.Err("query", err)
		e.Err("query row", s.QueryRow().Scan(new(int)))
	}},
	{"StatementsMayBeClosedBeforeTheirRows", 0, func(e *Env) {
		s := e.Prepare(e.DB, "SELECT 1")
		rows, err := s.Query()
		e.Must(err)
		e.Err("close", s.Close())
		e.Rows("rows", rows, nil)
		e.Idle()
		e.Alive()
	}},
	{"StatementsWorkOnEveryConnection", ConnectionID, func(e *Env) {
		s := e.Prepare(e.DB, e.SQL.ConnectionID)
		held := []*sql.Rows{}
		seen := map[int64]bool{}
		for range 3 {
			rows, err := s.Query()
			e.Must(err)
			held = append(held, rows)
			var id int64
			e.Value("next", rows.Next())
			e.Err("scan", rows.Scan(&id))
			seen[id] = true
		}
		e.Value("connections", len(seen))
		for _, rows := range held {
			e.Err("rows close", rows.Close())
		}
		e.Err("close", s.Close())
	}},
	{"StatementsMayBeUsedByManyGoroutines", 0, func(e *Env) {
		e.Table("t", "a INT, b TEXT")
		e.Do(e.DB, "INSERT INTO t VALUES (1, 'one'), (2, 'two')")
		e.DB.SetMaxOpenConns(3)
		s := e.Prepare(e.DB, "SELECT b FROM t WHERE a = ?")
		want := [...]string{1: "one", 2: "two"}
		var wg sync.WaitGroup
		var mu sync.Mutex
		wrong := 0
		for g := range 8 {
			wg.Go(func() {
				for range 10 {
					var b string
					a := 1 + g%2
					if err := s.QueryRow(a).Scan(&b); err != nil || b != want[a] {
						mu.Lock()
						wrong++
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		e.Value("wrong answers", wrong)
		e.Err("close", s.Close())
		e.Idle()
	}},
	{"StatementsFollowAChangedTable", 0, func(e *Env) {
		// One connection, so that it is the prepared statement which meets the
		// new table.
		e.DB.SetMaxOpenConns(1)
		e.Table("t", "a INT")
		e.Do(e.DB, "INSERT INTO t VALUES (1)")
		s := e.Prepare(e.DB, "INSERT INTO t VALUES (?)")
		res, err := s.Exec(2)
		e.Result("before", res, err)
		e.Do(e.DB, "DROP TABLE t")
		res, err = s.Exec(3)
		e.Is("without table", err)
		e.Value("result", res == nil)
		e.Do(e.DB, "CREATE TABLE t (a INT)")
		res, err = s.Exec(4)
		e.Result("after", res, err)
		e.Err("close", s.Close())
		e.Query("rows", e.DB, "SELECT a FROM t")
	}},
	{"StatementsOfOneTextEndEachByItself", 0, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		one, two := e.Prepare(e.DB, "SELECT 1"), e.Prepare(e.DB, "SELECT 1")
		e.Err("one", one.QueryRow().Scan(new(int)))
		e.Err("close one", one.Close())
		e.Err("two", two.QueryRow().Scan(new(int)))
		e.Err("close two", two.Close())
		e.Alive()
	}},
	{"StatementsMayHaveManyArguments", 0, func(e *Env) {
		const many = 300
		args := make([]any, many)
		for i := range args {
			args[i] = strconv.Itoa(i)
		}
		text := "SELECT " + strings.Repeat("?, ", many-1) + "?"
		e.Query("direct", e.DB, text, args...)
		s := e.Prepare(e.DB, text)
		rows, err := s.Query(args...)
		e.Rows("prepared", rows, err)
		e.Err("close", s.Close())
	}},
	{"StatementsSurviveAnError", 0, func(e *Env) {
		e.Table("t", "a INT NOT NULL")
		s := e.Prepare(e.DB, "INSERT INTO t VALUES (?)")
		for _, v := range []any{1, nil, 2} {
			res, err := s.Exec(v)
			e.Result("insert", res, err)
		}
		e.Err("close", s.Close())
		e.Query("rows", e.DB, "SELECT a FROM t")
	}},
	{"StatementsSurviveTheirConnection", OnFake, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		s := e.Prepare(e.DB, "SELECT ?")
		for i := range 3 {
			var n int
			err := s.QueryRow(i).Scan(&n)
			e.Value("value", n, err)
			e.Server.KillAll()
		}
		e.Err("close", s.Close())
	}},
	{"StatementsLeaveTheServerWhenClosed", OnFake, func(e *Env) {
		s := e.Prepare(e.DB, "SELECT 1")
		for range 3 {
			e.Err("query", s.QueryRow().Scan(new(int)))
		}
		e.Err("close", s.Close())
		e.Value("prepared on the server", e.Server.State().Prepared())
	}},
	{"StatementsCloseErrorIsReported", OnFake, func(e *Env) {
		s := e.Prepare(e.DB, "SELECT 1")
		e.Server.Inject(fakedb.Fault{Call: fakedb.StmtClose, Err: errBoom})
		e.Err("close", s.Close())
		e.Alive()
	}},
	{"PreparedOncePerConnection", OnFake, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		s := e.Prepare(e.DB, "SELECT 1 AS prepared_once")
		for range 5 {
			e.Err("query", s.QueryRow().Scan(new(int)))
		}
		e.Err("close", s.Close())
		e.Value("prepared", len(e.Server.Events(fakedb.ConnPrepare, fakedb.ConnPrepareCtx)))
	}},
	{"PrepareOnAConnectionEndsWithIt", 0, func(e *Env) {
		c := e.Conn()
		s, err := c.PrepareContext(e.Ctx, "SELECT 1")
		e.Must(err)
		rows, err := s.Query()
		e.Rows("query", rows, err)
		e.Err("give back", c.Close())
		_, err = s.Query()
		e.Err("query afterwards", err)
		e.Err("close", s.Close())
		e.Idle()
	}},
}

var txStmtCases = []Case{
	{"PrepareInATransactionEndsWithIt", 0, func(e *Env) {
		e.Table("t", "a INT")
		tx := e.Begin(e.Ctx)
		s := e.Prepare(tx, "INSERT INTO t VALUES (?)")
		for i := range 3 {
			res, err := s.Exec(i)
			e.Result("insert", res, err)
		}
		e.Err("commit", tx.Commit())
		_, err := s.Exec(9)
		e.Err("afterwards", err)
		e.Err("close", s.Close())
		e.Query("rows", e.DB, "SELECT a FROM t")
	}},
	{"StatementsOfTheDatabaseWorkInATransaction", 0, func(e *Env) {
		e.Table("t", "a INT")
		s := e.Prepare(e.DB, "INSERT INTO t VALUES (?)")
		tx := e.Begin(e.Ctx)
		inTx := tx.StmtContext(e.Ctx, s)
		res, err := inTx.Exec(1)
		e.Result("in it", res, err)
		e.Err("rollback", tx.Rollback())
		_, err = inTx.Exec(2)
		e.Err("after it", err)
		res, err = s.Exec(3)
		e.Result("outside", res, err)
		e.Err("close", inTx.Close())
		e.Err("close", s.Close())
		e.Query("rows", e.DB, "SELECT a FROM t")
	}},
	{"StatementsClosedBeforeTheTransactionArePreparedAgain", 0, func(e *Env) {
		s := e.Prepare(e.DB, "SELECT 1")
		e.Err("close", s.Close())
		tx := e.Begin(e.Ctx)
		e.Err("query", tx.Stmt(s).QueryRow().Scan(new(int)))
		e.Err("commit", tx.Commit())
	}},
	{"StatementsOutliveTheirTransactionsCopy", 0, func(e *Env) {
		s := e.Prepare(e.DB, "SELECT 1")
		tx := e.Begin(e.Ctx)
		inTx := tx.Stmt(s)
		e.Err("query", inTx.QueryRow().Scan(new(int)))
		e.Err("close the parent", s.Close())
		e.Err("query", inTx.QueryRow().Scan(new(int)))
		e.Err("commit", tx.Commit())
		e.Idle()
	}},
	{"StatementsOfOneTransactionWorkInAnother", 0, func(e *Env) {
		tx := e.Begin(e.Ctx)
		s := e.Prepare(tx, "SELECT 1")
		e.Err("commit", tx.Commit())
		other := e.Begin(e.Ctx)
		e.Err("query", other.Stmt(s).QueryRow().Scan(new(int)))
		e.Err("commit", other.Commit())
	}},
	{"StatementsInATransactionAreNotPreparedTwice", OnFake, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		s := e.Prepare(e.DB, "SELECT 1")
		for range 3 {
			tx := e.Begin(e.Ctx)
			e.Err("query", tx.Stmt(s).QueryRow().Scan(new(int)))
			e.Err("commit", tx.Commit())
		}
		e.Err("close", s.Close())
		e.Value("prepared", len(e.Server.Events(fakedb.ConnPrepare, fakedb.ConnPrepareCtx)))
	}},
	{"StatementsOfAnotherDatabaseAreRefused", OnFake, func(e *Env) {
		other := sql.OpenDB(fakedb.NewServer().Connector(fakedb.Variant{}))
		defer func() { _ = other.Close() }()
		s, err := other.Prepare("SELECT 1")
		e.Must(err)
		tx := e.Begin(e.Ctx)
		e.Err("query", tx.Stmt(s).QueryRow().Scan(new(int)))
		e.Err("rollback", tx.Rollback())
		e.Err("close", s.Close())
	}},
	{"PrepareInAnEndedTransactionIsRefused", 0, func(e *Env) {
		tx := e.Begin(e.Ctx)
		e.Err("rollback", tx.Rollback())
		_, err := tx.Prepare("SELECT 1")
		e.Err("prepare", err)
		s := e.Prepare(e.DB, "SELECT 1")
		e.Err("statement", tx.Stmt(s).QueryRow().Scan(new(int)))
		e.Err("close", s.Close())
	}},
}
