package conformance

import (
	"context"
	"database/sql"
	"database/sql/driver"
)

// valuer is a driver.Valuer with a value receiver, so that database/sql makes
// NULL of a nil pointer to it.
type valuer struct {
	v   any
	err error
}

func (v valuer) Value() (driver.Value, error) { return v.v, v.err }

// pointerValuer has a pointer receiver, which is called also when nil.
type pointerValuer struct{}

func (v *pointerValuer) Value() (driver.Value, error) {
	if v == nil {
		return "nil receiver", nil
	}
	return "receiver", nil
}

type valuerFunc func() (driver.Value, error)

func (f valuerFunc) Value() (driver.Value, error) { return f() }

var valuerCases = []Case{
	{"ValuersGiveTheirValue", OnFake, func(e *Env) {
		for _, v := range []any{
			valuer{v: int64(7)}, valuer{v: "text"}, valuer{v: nil}, valuer{v: leapDay}, valuer{v: []byte("b")},
			&valuer{v: true}, (*valuer)(nil), &pointerValuer{}, (*pointerValuer)(nil),
		} {
			e.everyWay("valuer", "SELECT ?", v)
		}
	}},
	{"ValuersAreStored", 0, func(e *Env) {
		e.Table("t", "a INT, b TEXT")
		e.Exec("value", e.DB, e.SQL.Insert, valuer{v: int64(7)}, valuer{v: "text"})
		e.Exec("nil pointers", e.DB, e.SQL.Insert, (*valuer)(nil), (*valuer)(nil))
		e.Exec("null", e.DB, e.SQL.Insert, valuer{}, &valuer{})
		e.Query("rows", e.DB, "SELECT a, b FROM t")
	}},
	{"ValuersErrorsCanBeUnwrapped", 0, func(e *Env) {
		e.Table("t", "a INT, b TEXT")
		e.Exec("error", e.DB, e.SQL.Insert, 1, valuer{err: errBoom})
		s := e.Prepare(e.DB, "INSERT INTO t VALUES (?, ?)")
		res, err := s.Exec(valuer{err: errBoom}, "x")
		e.Result("prepared", res, err)
		e.Err("close", s.Close())
		e.Count("rows", e.DB, "t")
	}},
	{"ValuersOfForeignTypesAreRefused", OnFake, func(e *Env) {
		e.everyWay("int", "SELECT ?", valuer{v: 7})
		e.everyWay("struct", "SELECT ?", valuer{v: struct{}{}})
		e.everyWay("valuer", "SELECT ?", valuer{v: valuer{v: int64(7)}})
	}},
	{"ValuersAreCalledOnce", OnFake, func(e *Env) {
		calls := 0
		counting := valuerFunc(func() (driver.Value, error) {
			calls++
			return int64(calls), nil
		})
		e.Query("direct", e.DB, "SELECT ?", counting)
		e.Value("calls", calls)
		s := e.Prepare(e.DB, "SELECT ?")
		rows, err := s.Query(counting)
		e.Rows("prepared", rows, err)
		e.Value("calls", calls)
		e.Err("close", s.Close())
	}},
	{"ValuersMayQueryTheSameDatabase", 0, func(e *Env) {
		e.Table("t", "a INT, b TEXT")
		asking := valuerFunc(func() (driver.Value, error) {
			var n int64
			err := e.DB.QueryRowContext(e.Ctx, "SELECT count(*) FROM t").Scan(&n)
			return n, err
		})
		for range 2 {
			e.Exec("insert", e.DB, e.SQL.Insert, asking, "x")
		}
		s := e.Prepare(e.DB, "INSERT INTO t VALUES (?, ?)")
		res, err := s.Exec(asking, "x")
		e.Result("prepared", res, err)
		e.Err("close", s.Close())
		e.Query("rows", e.DB, "SELECT a, b FROM t")
	}},
	{"ValuersThatPanicLeaveTheDatabaseUsable", 0, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		bad := valuerFunc(func() (driver.Value, error) { panic("valuer") })
		for range 2 {
			e.Panics("exec", func() { _, _ = e.DB.Exec(e.SQL.rebind("SELECT ?"), bad) })
			e.Idle()
		}
		e.Alive()
	}},
	{"ValuersThatPanicInAQueryReachTheCaller", OnFake, func(e *Env) {
		e.Leaks()
		bad := valuerFunc(func() (driver.Value, error) { panic("valuer") })
		e.Panics("query", func() { _, _ = e.DB.Query("SELECT ?", bad) })
		s := e.Prepare(e.DB, "SELECT ?")
		e.Panics("prepared", func() { _, _ = s.Query(bad) })
		e.Alive()
	}},
	{"ArgumentsAreNotAskedOnceTheContextEnded", 0, func(e *Env) {
		calls := 0
		counting := valuerFunc(func() (driver.Value, error) {
			calls++
			return int64(1), nil
		})
		_, err := e.DB.ExecContext(cancelled(), e.SQL.rebind("SELECT ?"), counting)
		e.Err("exec", err)
		e.Err("query", e.DB.QueryRowContext(cancelled(), e.SQL.rebind("SELECT ?"), counting).Scan(new(any)))
		e.Value("calls", calls)
	}},
	{"BadArgumentsWinOverContextsThatEndMeanwhile", OnFake, func(e *Env) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		ending := valuerFunc(func() (driver.Value, error) {
			cancel()
			return nil, errBoom
		})
		_, err := e.DB.ExecContext(ctx, "SELECT ?", ending)
		e.Err("exec", err)
		e.Alive()
	}},
	{"NullTypesScanAndValueAlike", OnFake, func(e *Env) {
		e.Table("t", "a INT, b TEXT, c FLOAT, d BOOL, f TIMESTAMP")
		e.Exec("null", e.DB, "INSERT INTO t VALUES (?, ?, ?, ?, ?)",
			sql.NullInt64{}, sql.NullString{}, sql.NullFloat64{}, sql.NullBool{}, sql.NullTime{})
		e.Exec("valid", e.DB, "INSERT INTO t VALUES (?, ?, ?, ?, ?)",
			sql.NullInt64{Int64: 7, Valid: true}, sql.NullString{String: "s", Valid: true},
			sql.NullFloat64{Float64: 1.5, Valid: true}, sql.NullBool{Bool: true, Valid: true},
			sql.NullTime{Time: leapDay, Valid: true})
		rows, err := e.DB.Query("SELECT * FROM t")
		e.Must(err)
		for rows.Next() {
			var a sql.NullInt32
			var b sql.Null[string]
			var c sql.NullFloat64
			var d sql.NullBool
			var f sql.NullTime
			err := rows.Scan(&a, &b, &c, &d, &f)
			e.Value("row", a, b, c, d, f, err)
		}
		e.Err("end", rows.Err())
		e.Err("close", rows.Close())
	}},
}
