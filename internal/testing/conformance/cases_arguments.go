package conformance

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

func tagged() context.Context {
	return context.WithValue(context.Background(), fakedb.TagKey{}, "the caller's own")
}

type (
	myInt    int
	myString string
	myBytes  []byte
)

// arguments are what database/sql converts for the driver, and what it, or the
// driver, refuses.
func arguments() []any {
	seven, text := 7, "text"
	var none *int
	return []any{
		nil, 7, int8(-7), uint16(7), uint64(1) << 62, ^uint64(0), 1.5, float32(1.5), true, "text",
		[]byte("bytes"), []byte{}, []byte(nil), leapDay, myInt(7), myString("mine"), myBytes("mine"),
		&seven, &text, none, sql.RawBytes("raw"), time.Minute,
		sql.NullString{}, sql.NullString{String: "s", Valid: true}, sql.NullInt64{Int64: 7, Valid: true},
		sql.NullInt32{Int32: 7, Valid: true}, sql.NullInt16{}, sql.NullByte{Byte: 7, Valid: true},
		sql.NullFloat64{}, sql.NullBool{Bool: true, Valid: true}, sql.NullTime{Time: leapDay, Valid: true},
		sql.Null[string]{V: "generic", Valid: true}, sql.Null[int]{},
		struct{ A int }{1}, map[string]int{}, []string{"a"}, make(chan int), complex(1, 2), func() {},
	}
}

// everyWay runs a query with one argument directly, prepared, in a transaction
// and on a connection.
func (e *Env) everyWay(label, query string, args ...any) {
	e.Query(label+" direct", e.DB, query, args...)
	s, err := e.DB.PrepareContext(e.Ctx, e.SQL.rebind(query))
	e.Err(label+" prepare", err)
	if err == nil {
		rows, err := s.QueryContext(e.Ctx, args...)
		e.Rows(label+" prepared", rows, err)
		res, err := s.ExecContext(e.Ctx, args...)
		e.Result(label+" prepared exec", res, err)
		e.Err(label+" close", s.Close())
	}
	e.Exec(label+" exec", e.DB, query, args...)
	tx := e.Begin(e.Ctx)
	e.Query(label+" in a transaction", tx, query, args...)
	e.Err(label+" rollback", tx.Rollback())
	c := e.Conn()
	e.Query(label+" on a connection", c, query, args...)
	e.Err(label+" give back", c.Close())
}

var argumentCases = []Case{
	{"ArgumentsOfEveryKindAreConvertedAlike", OnFake, func(e *Env) {
		for _, arg := range arguments() {
			e.Query("direct", e.DB, "SELECT ?", arg)
			s := e.Prepare(e.DB, "SELECT ?")
			rows, err := s.Query(arg)
			e.Rows("prepared", rows, err)
			e.Err("close", s.Close())
		}
	}},
	{"ArgumentsAreStoredAlike", 0, func(e *Env) {
		e.Table("t", "a INT, b TEXT")
		e.Exec("values", e.DB, e.SQL.Insert, 7, "text")
		e.Exec("named types", e.DB, e.SQL.Insert, myInt(7), myString("mine"))
		seven, text := 7, "text"
		e.Exec("pointers", e.DB, e.SQL.Insert, &seven, &text)
		e.Exec("nil pointers", e.DB, e.SQL.Insert, (*int)(nil), (*string)(nil))
		e.Exec("null types", e.DB, e.SQL.Insert, sql.NullInt64{}, sql.NullString{String: "s", Valid: true})
		e.Exec("refused", e.DB, e.SQL.Insert, struct{ A int }{1}, make(chan int))
		e.Query("rows", e.DB, "SELECT a, b FROM t")
	}},
	{"WrongNumbersOfArgumentsAreRefusedAlike", 0, func(e *Env) {
		e.Table("t", "a INT, b TEXT")
		insert := e.Prepare(e.DB, "INSERT INTO t VALUES (?, ?)")
		for _, args := range [][]any{nil, {1}, {1, "a", true}} {
			e.Exec("exec", e.DB, "INSERT INTO t VALUES (?, ?)", args...)
			res, err := insert.Exec(args...)
			e.Result("prepared", res, err)
			e.Query("query", e.DB, "SELECT a FROM t WHERE a = ? AND b = ?", args...)
		}
		e.Exec("arguments for none", e.DB, "INSERT INTO t VALUES (1, 'a')", 1)
		e.Err("close", insert.Close())
		e.Count("rows", e.DB, "t")
	}},
	{"NamedArgumentsReachTheDriver", Named, func(e *Env) {
		e.everyWay("named", e.SQL.Named, sql.Named("arg", 7))
		e.everyWay("other name", e.SQL.Named, sql.Named("other", 7))
	}},
	{"NamedArgumentsWithBadNamesAreRefused", 0, func(e *Env) {
		e.everyWay("digit", "SELECT ?", sql.Named("1st", 7))
		e.everyWay("empty", "SELECT ?", sql.Named("", 7))
	}},
	{"NamedArgumentsAreRefusedWhereTheDriverHasNone", OnFake, func(e *Env) {
		e.everyWay("mixed", "SELECT ?, :arg", 1, sql.Named("arg", 7))
		s := e.Prepare(e.DB, "SET a = :arg")
		res, err := s.Exec(sql.Named("arg", 7))
		e.Result("prepared exec", res, err)
		e.Err("close", s.Close())
	}},
	{"ArgumentsForTheDriverAloneAreRemoved", OnFake, func(e *Env) {
		e.everyWay("first", "SELECT ?", fakedb.Option("fast"), 1)
		e.everyWay("last", "SELECT ?", 1, fakedb.Option("slow"))
		e.everyWay("alone", "SELECT 1", fakedb.Option("alone"))
	}},
	{"ArgumentTypesOfTheDriverReachItsChecker", OnFake, func(e *Env) {
		e.everyWay("point", "SELECT ?", fakedb.Point{X: 1, Y: 2})
	}},
	{"ArgumentsRefusedByTheDriverNameTheirPlace", OnFake, func(e *Env) {
		e.everyWay("second", "SELECT ?, ?", 1, fakedb.Refused{})
		e.everyWay("named", "SELECT :arg", sql.Named("arg", fakedb.Refused{}))
		e.Value("executed", e.Server.Executed("SELECT"))
	}},
	{"OutputArgumentsAreFilled", OnFake, func(e *Env) {
		var direct, inout, prepared string
		e.Exec("direct", e.DB, "CALL out(?)", sql.Out{Dest: &direct})
		inout = "in"
		e.Exec("inout", e.DB, "CALL out(?)", sql.Out{Dest: &inout, In: true})
		s := e.Prepare(e.DB, "CALL out(?)")
		res, err := s.Exec(sql.Out{Dest: &prepared})
		e.Result("prepared", res, err)
		e.Err("close", s.Close())
		e.Value("values", direct, inout, prepared)
	}},
	{"ColumnConvertersConvertWhatIsInserted", OnFake, func(e *Env) {
		e.Table("t", "a INT NOT NULL, b BOOL, c TEXT, d TIMESTAMP")
		s := e.Prepare(e.DB, "INSERT INTO t VALUES (?, ?, ?, ?)")
		for _, args := range [][]any{
			{"7", "true", 5, leapDay}, {7, 1, []byte("b"), nil}, {1 << 40, true, "c", nil}, {"seven", true, "c", nil},
			{nil, nil, nil, nil}, {7, "maybe", "c", nil}, {7, true, nil, "today"},
			{fakedb.Point{}, fakedb.Option("o"), 1, 1}, {valuer{v: "8"}, valuer{v: 0}, valuer{}, valuer{v: leapDay}},
		} {
			res, err := s.Exec(args...)
			e.Result("prepared", res, err)
			e.Exec("direct", e.DB, "INSERT INTO t VALUES (?, ?, ?, ?)", args...)
		}
		e.Err("close", s.Close())
		e.Value("table", e.Server.Table("t"))
	}},
	{"ColumnConvertersSeeMoreArgumentsThanPlaceholders", OnFake, func(e *Env) {
		e.Table("t", "a INT")
		s := e.Prepare(e.DB, "INSERT INTO t VALUES (?)")
		res, err := s.Exec("1", "2")
		e.Result("too many", res, err)
		e.Err("close", s.Close())
		e.Value("table", e.Server.Table("t"))
	}},
	{"TheDriverSeesTheSameArguments", OnFake, func(e *Env) {
		e.Exec("direct", e.DB, "SELECT ?, ?", 7, sql.NullString{})
		s := e.Prepare(e.DB, "SELECT ?, ?")
		res, err := s.Exec([]byte("b"), myInt(3))
		e.Result("prepared", res, err)
		e.Err("close", s.Close())
		for _, event := range e.Server.Events() {
			if len(event.Args) == 2 {
				e.Value(string(event.Call), event.Args)
			}
		}
	}},
	{"ByteArgumentsAreNotChanged", 0, func(e *Env) {
		e.Table("t", "a INT, b BLOB")
		raw, plain := sql.RawBytes("raw bytes"), []byte("plain bytes")
		e.Exec("raw", e.DB, "INSERT INTO t VALUES (?, ?)", 1, raw)
		e.Exec("plain", e.DB, "INSERT INTO t VALUES (?, ?)", 2, plain)
		e.Value("afterwards", raw, plain)
		plain[0] = 'X'
		e.Query("stored", e.DB, "SELECT a, b FROM t")
	}},
	{"BigArgumentsAndResultsAreWhole", 0, func(e *Env) {
		e.Table("t", "a INT, b BLOB")
		big := []byte(strings.Repeat("0123456789abcdef", 1<<14))
		e.Exec("direct", e.DB, "INSERT INTO t VALUES (?, ?)", 1, big)
		s := e.Prepare(e.DB, "INSERT INTO t VALUES (?, ?)")
		res, err := s.Exec(2, append(big, 'x'))
		e.Result("prepared", res, err)
		e.Err("close", s.Close())
		e.Query("rows", e.DB, "SELECT a, b FROM t")
		e.Query("one row", e.DB, "SELECT b FROM t WHERE a = ?", 2)
	}},
	{"QuotesInArgumentsStayArguments", 0, func(e *Env) {
		e.Table("t", "a INT, b TEXT")
		for i, s := range []string{"it's", `\' OR 1=1 --`, "\n\r\t\x1a\"", "; DROP TABLE t", "?", "$1"} {
			e.Exec("insert", e.DB, "INSERT INTO t VALUES (?, ?)", i, s)
			e.Query("select", e.DB, "SELECT a, b FROM t WHERE b = ?", s)
		}
		e.Count("rows", e.DB, "t")
	}},
	{"ArgumentTypesOfTheRealDriverGetThrough", Own, func(e *Env) {
		for _, own := range e.SQL.Own {
			rows, err := e.DB.QueryContext(e.Ctx, own.Query, own.Args...)
			e.Rows(own.Name+" direct", rows, err)
			tx := e.Begin(e.Ctx)
			rows, err = tx.QueryContext(e.Ctx, own.Query, own.Args...)
			e.Rows(own.Name+" in a transaction", rows, err)
			e.Err(own.Name+" rollback", tx.Rollback())
		}
	}},
}
