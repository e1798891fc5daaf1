package conformance

import (
	"context"
	"database/sql"
	"time"

	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

var pingCases = []Case{
	{"PingReachesTheServer", 0, func(e *Env) {
		e.Err("ping", e.DB.PingContext(e.Ctx))
		c := e.Conn()
		e.Err("on a connection", c.PingContext(e.Ctx))
		e.Err("cancelled", c.PingContext(cancelled()))
		e.Err("afterwards", e.DB.Ping())
	}},
	{"PingOpensAConnection", OnFake, func(e *Env) {
		e.Err("ping", e.DB.PingContext(e.Ctx))
		e.Value("connections", e.Server.State().Open())
	}},
	{"PingErrorsGoThroughUnchanged", OnFake, func(e *Env) {
		e.Server.Inject(fakedb.Fault{Call: fakedb.ConnPing, Err: errBoom})
		e.Err("ping", e.DB.PingContext(e.Ctx))
		e.Err("again", e.DB.PingContext(e.Ctx))
		e.Idle()
	}},
	{"PingOfAServerThatRefusesFails", OnFake, func(e *Env) {
		e.Server.Refuse(errBoom)
		e.Err("ping", e.DB.PingContext(e.Ctx))
		e.Server.Refuse(nil)
		e.Err("ping", e.DB.PingContext(e.Ctx))
	}},
}

var poolCases = []Case{
	{"ConnectErrorsReachTheFirstOperation", OnFake, func(e *Env) {
		e.Server.Refuse(errBoom)
		e.Exec("exec", e.DB, "SET a = 1")
		e.Query("query", e.DB, "SELECT 1")
		_, err := e.DB.Prepare("SELECT 1")
		e.Err("prepare", err)
		_, err = e.DB.Begin()
		e.Err("begin", err)
		e.Idle()
		e.Server.Refuse(nil)
		e.Alive()
	}},
	{"ConnectErrorsReachConn", OnFake, func(e *Env) {
		e.Server.Refuse(errBoom)
		c, err := e.DB.Conn(e.Ctx)
		e.Err("conn", err)
		e.Server.Refuse(nil)
		if err == nil {
			_ = c.Close()
		}
		e.Idle()
		e.Alive()
	}},
	{"ConnectErrorsDoNotUseUpTheLimit", OnFake, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		for range 3 {
			e.Server.Fail(fakedb.Connect, 1, errBoom)
			e.Exec("exec", e.DB, "SET a = 1")
		}
		e.Alive()
		e.Value("open", e.DB.Stats().OpenConnections)
	}},
	{"DriverIsTheRealOne", 0, func(e *Env) {
		e.note("type", typeName(e.DB.Driver()))
		e.Alive()
	}},
	{"MaxOpenConnsIsRespected", OnFake, func(e *Env) {
		e.DB.SetMaxOpenConns(2)
		one, two := e.Conn(), e.Conn()
		e.Query("one", one, "SELECT 1")
		e.Query("two", two, "SELECT 1")
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() {
			_, err := e.DB.ExecContext(ctx, "SET waited = 1")
			done <- err
		}()
		e.Await("a third waits", func() bool { return e.DB.Stats().WaitCount == 1 })
		cancel()
		e.Err("third", <-done)
		e.Value("executed", e.Server.Executed("waited"))
		e.Err("give back", one.Close())
		e.Alive()
		e.Err("give back", two.Close())
		e.Value("most connections at once", e.Server.State().MaxOpen)
	}},
	{"WaitersGetWhatIsGivenBack", 0, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		held := e.Conn()
		done := make(chan error)
		for range 3 {
			go func() { done <- e.DB.QueryRowContext(e.Ctx, "SELECT 1").Scan(new(int)) }()
		}
		e.Await("three wait", func() bool { return e.DB.Stats().WaitCount == 3 })
		e.Err("give back", held.Close())
		for range 3 {
			e.Err("waiter", <-done)
		}
		e.Idle()
	}},
	{"StatsCountWhatIsInUse", 0, func(e *Env) {
		e.DB.SetMaxOpenConns(5)
		see := func(label string) {
			s := e.DB.Stats()
			e.Value(label, s.MaxOpenConnections, s.OpenConnections, s.InUse, s.Idle, s.WaitCount)
		}
		see("at first")
		one := e.Conn()
		e.Query("query", one, "SELECT 1")
		see("one")
		tx := e.Begin(e.Ctx)
		see("two")
		e.Err("rollback", tx.Rollback())
		e.Err("give back", one.Close())
		see("none")
	}},
	{"MaxIdleConnsIsRespected", OnFake, func(e *Env) {
		e.DB.SetMaxIdleConns(1)
		one, two := e.Conn(), e.Conn()
		e.Query("one", one, "SELECT 1")
		e.Query("two", two, "SELECT 1")
		e.Err("give back", one.Close())
		e.Err("give back", two.Close())
		e.Value("idle", e.DB.Stats().Idle, e.DB.Stats().MaxIdleClosed)
		e.Value("on the server", e.Server.State().Open())
	}},
	{"NoIdleConnsMeansANewOneEachTime", OnFake, func(e *Env) {
		e.DB.SetMaxIdleConns(-1)
		for range 3 {
			e.Alive()
		}
		e.Value("idle", e.DB.Stats().Idle, e.DB.Stats().MaxIdleClosed)
		e.Value("opened on the server", e.Server.State().Opened)
	}},
	{"ConnMaxLifetimeIsRespected", OnFake, func(e *Env) {
		e.DB.SetConnMaxLifetime(time.Nanosecond)
		for range 3 {
			e.Alive()
		}
		e.Value("closed", e.DB.Stats().MaxLifetimeClosed > 0)
		e.Value("opened on the server", e.Server.State().Opened)
	}},
	{"ConnMaxIdleTimeIsAccepted", 0, func(e *Env) {
		e.DB.SetConnMaxIdleTime(time.Hour)
		e.Alive()
		e.DB.SetConnMaxIdleTime(0)
		e.Alive()
	}},
	{"ConnectionsAreReused", OnFake, func(e *Env) {
		for range 5 {
			e.Alive()
		}
		tx := e.Begin(e.Ctx)
		e.Err("commit", tx.Commit())
		e.Value("opened on the server", e.Server.State().Opened)
	}},
}

var closeCases = []Case{
	{"CloseMayBeRepeatedAndRefusesWhatFollows", 0, func(e *Env) {
		s := e.Prepare(e.DB, "SELECT 1")
		e.Err("close", e.DB.Close())
		e.Err("close again", e.DB.Close())
		e.Err("ping", e.DB.Ping())
		e.Exec("exec", e.DB, "SELECT 1")
		e.Query("query", e.DB, "SELECT 1")
		_, err := e.DB.Prepare("SELECT 1")
		e.Err("prepare", err)
		_, err = e.DB.Begin()
		e.Err("begin", err)
		_, err = e.DB.Conn(e.Ctx)
		e.Err("conn", err)
		e.Err("statement", s.QueryRow().Scan(new(int)))
		e.Err("statement close", s.Close())
	}},
	{"CloseOfADatabaseNeverUsedOpensNothing", OnFake, func(e *Env) {
		e.Err("close", e.DB.Close())
		e.Value("opened on the server", e.Server.State().Opened)
	}},
	{"CloseTellsTheConnector", OnFake, func(e *Env) {
		e.Alive()
		e.Err("close", e.DB.Close())
		e.Value("told", len(e.Server.Events(fakedb.CloseDriver)))
	}},
	{"CloseLetsOpenRowsEnd", OnFake, func(e *Env) {
		rows, err := e.DB.Query("SELECT * FROM numbers LIMIT 3")
		e.Must(err)
		e.Value("next", rows.Next())
		e.Err("close", e.DB.Close())
		e.Row("row", rows, 1)
		e.Value("next", rows.Next())
		e.Row("row", rows, 1)
		e.Err("rows close", rows.Close())
		e.Await("nobody is connected", func() bool { return e.Server.State().Open() == 0 })
	}},
	{"CloseLetsAnOpenTransactionEnd", OnFake, func(e *Env) {
		e.Table("t", "a INT")
		tx := e.Begin(e.Ctx)
		e.Exec("insert", tx, "INSERT INTO t VALUES (1)")
		e.Err("close", e.DB.Close())
		e.Exec("insert", tx, "INSERT INTO t VALUES (2)")
		e.Err("commit", tx.Commit())
		e.Value("rows", len(e.Server.Table("t")))
	}},
	{"CloseLetsAnOpenConnEnd", OnFake, func(e *Env) {
		c := e.Conn()
		e.Query("before", c, "SELECT 1")
		e.Err("close", e.DB.Close())
		e.Err("after", c.QueryRowContext(e.Ctx, "SELECT 1").Scan(new(int)))
		e.Err("give back", c.Close())
	}},
	{"CloseWakesThoseWhoWait", OnFake, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		held := e.Conn()
		e.Query("held", held, "SELECT 1")
		done := make(chan error)
		go func() {
			_, err := e.DB.ExecContext(e.Ctx, "SET a = 1")
			done <- err
		}()
		e.Await("one waits", func() bool { return e.DB.Stats().WaitCount == 1 })
		e.Err("close", e.DB.Close())
		e.Err("waiter", <-done)
		e.Err("give back", held.Close())
	}},
	{"CloseOfConnectionsThatFailIsReported", OnFake, func(e *Env) {
		e.Alive()
		e.Server.Inject(fakedb.Fault{Call: fakedb.ConnClose, Err: errBoom})
		e.Err("closing with an error", e.DB.Close())
	}},
	{"UnclosedThingsEndWithTheirContext", OnFake, func(e *Env) {
		ctx, cancel := context.WithCancel(context.Background())
		_, err := e.DB.QueryContext(ctx, "SELECT * FROM numbers LIMIT 3")
		e.Must(err)
		_, err = e.DB.BeginTx(ctx, &sql.TxOptions{})
		e.Must(err)
		e.Value("in use", e.DB.Stats().InUse)
		cancel()
		e.Idle()
		e.Await("nothing is left", func() bool {
			s := e.Server.State()
			return s.InTx() == 0 && s.OpenRows() == 0
		})
	}},
}
