package conformance

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

var connCases = []Case{
	{"ConnKeepsItsConnection", ConnectionID, func(e *Env) {
		c := e.Conn()
		id := e.ID(c)
		e.Value("another one", e.ID(e.DB) == id)
		tx, err := c.BeginTx(e.Ctx, nil)
		e.Must(err)
		e.Value("in a transaction", e.ID(tx) == id)
		e.Err("commit", tx.Commit())
		s, err := c.PrepareContext(e.Ctx, e.SQL.ConnectionID)
		e.Must(err)
		var prepared int64
		e.Err("prepared", s.QueryRow().Scan(&prepared))
		e.Value("prepared", prepared == id)
		e.Err("close", s.Close())
		e.Err("ping", c.PingContext(e.Ctx))
		e.Value("still", e.ID(c) == id)
		e.Err("give back", c.Close())
	}},
	{"ConnClosedHasItsErrors", 0, func(e *Env) {
		c := e.Conn()
		e.Err("close", c.Close())
		e.Err("close again", c.Close())
		_, err := c.ExecContext(e.Ctx, "SELECT 1")
		e.Err("exec", err)
		_, err = c.QueryContext(e.Ctx, "SELECT 1")
		e.Err("query", err)
		e.Err("query row", c.QueryRowContext(e.Ctx, "SELECT 1").Scan(new(int)))
		_, err = c.PrepareContext(e.Ctx, "SELECT 1")
		e.Err("prepare", err)
		_, err = c.BeginTx(e.Ctx, nil)
		e.Err("begin", err)
		e.Err("ping", c.PingContext(e.Ctx))
		e.Err("raw", c.Raw(func(any) error { return nil }))
	}},
	{"ConnKeepsSessionState", SessionVar, func(e *Env) {
		c := e.Conn()
		e.Exec("set", c, e.SQL.SetVar)
		e.Query("show", c, e.SQL.ShowVar)
		tx, err := c.BeginTx(e.Ctx, nil)
		e.Must(err)
		e.Query("show in a transaction", tx, e.SQL.ShowVar)
		e.Err("rollback", tx.Rollback())
		e.Query("show", c, e.SQL.ShowVar)
	}},
	{"ConnKeepsTemporaryTables", TempTable, func(e *Env) {
		c := e.Conn()
		e.Exec("create", c, e.SQL.TempTable)
		e.Exec("insert", c, "INSERT INTO tmp VALUES (?)", 1)
		e.Count("rows", c, "tmp")
	}},
	{"ConnMayBeginByHand", 0, func(e *Env) {
		e.Table("t", "a INT")
		c := e.Conn()
		for _, end := range []string{"COMMIT", "ROLLBACK"} {
			e.Exec("begin", c, "BEGIN")
			e.Exec("insert", c, "INSERT INTO t VALUES (1)")
			e.Count("inside", c, "t")
			e.Exec(end, c, end)
			e.Count("outside", c, "t")
		}
		e.Err("give back", c.Close())
	}},
	{"ConnInATransactionRefusesAnother", OnFake, func(e *Env) {
		c := e.Conn()
		tx, err := c.BeginTx(e.Ctx, nil)
		e.Must(err)
		// The driver's answer counts.
		_, err = c.BeginTx(e.Ctx, nil)
		e.Err("second", err)
		e.Exec("exec beside it", c, "SET a = 1")
		e.Err("commit", tx.Commit())
		tx, err = c.BeginTx(e.Ctx, nil)
		e.Err("third", err)
		if err == nil {
			e.Err("rollback", tx.Rollback())
		}
	}},
	{"ConnGivenBackWithRowsOpenClosesThem", Series, func(e *Env) {
		c := e.Conn()
		rows, err := c.QueryContext(e.Ctx, e.SQL.Series)
		e.Must(err)
		e.Value("next", rows.Next())
		e.Err("rows close", rows.Close())
		e.Err("give back", c.Close())
		e.Idle()
		e.Alive()
	}},
	{"ConnOutlivesTheContextItWasAskedWith", 0, func(e *Env) {
		ctx, cancel := context.WithCancel(context.Background())
		c, err := e.DB.Conn(ctx)
		e.Must(err)
		cancel()
		e.Query("query", c, "SELECT 1")
		e.Err("give back", c.Close())
	}},
	{"ConnRawGivesTheDriversConnection", OnFake, func(e *Env) {
		c := e.Conn()
		e.Err("raw", c.Raw(func(dc any) error {
			_, own := dc.(interface{ ID() int })
			_, conn := dc.(driver.Conn)
			e.Value("is a driver.Conn", conn)
			e.Value("has the driver's own methods", own)
			return nil
		}))
		e.Query("afterwards", c, "SELECT 1")
	}},
	{"ConnRawErrorsAndPanicsGoThrough", 0, func(e *Env) {
		c := e.Conn()
		e.Err("error", c.Raw(func(any) error { return errBoom }))
		e.Query("afterwards", c, "SELECT 1")
		e.Panics("panic", func() { _ = c.Raw(func(any) error { panic("raw") }) })
		e.Err("afterwards", c.PingContext(e.Ctx))
		e.Idle()
		e.Alive()
	}},
	{"ConnRawMayReportABadConnection", 0, func(e *Env) {
		c := e.Conn()
		e.Err("bad", c.Raw(func(any) error { return fmt.Errorf("seen: %w", driver.ErrBadConn) }))
		e.Err("afterwards", c.PingContext(e.Ctx))
		e.Err("close", c.Close())
		e.Idle()
		e.Alive()
	}},
	{"ConnOfALostConnectionFails", OnFake, func(e *Env) {
		c := e.Conn()
		e.Query("before", c, "SELECT 1")
		e.Server.KillAll()
		e.Query("lost", c, "SELECT 1")
		e.Exec("again", c, "SET a = 1")
		e.Err("close", c.Close())
		e.Idle()
		e.Alive()
	}},
	{"InvalidConnectionsAreNotReused", OnFake, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		id := e.ID(e.DB)
		e.Value("same connection", e.ID(e.DB) == id)
		e.Server.Inject(fakedb.Fault{Call: fakedb.ConnValid, Err: errBoom})
		e.Alive()
		e.Value("same connection after IsValid said no", e.ID(e.DB) == id)
	}},
	{"SessionStateOutlivesItsCheckout", OnFake, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		e.Exec("set", e.DB, "SET lang = 'x'")
		e.Query("seen by the next", e.DB, "SHOW lang")
		c := e.Conn()
		e.Exec("temporary table", c, "CREATE TEMP TABLE tmp (a INT)")
		e.Err("give back", c.Close())
		_, err := e.DB.Exec("INSERT INTO tmp VALUES (1)")
		e.Err("temporary table seen by the next", err)
	}},
	{"BeginByHandOutlivesItsCheckout", OnFake, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		e.Table("t", "a INT")
		e.Exec("begin", e.DB, "BEGIN")
		e.Query("seen by the next", e.DB, "SHOW transaction")
		e.Exec("insert", e.DB, "INSERT INTO t VALUES (1)")
		_, err := e.DB.Exec("ROLLBACK")
		e.Err("rollback", err)
		e.Count("rows after the rollback", e.DB, "t")
	}},
}
