package conformance

import (
	"database/sql"
	"fmt"
)

// columnTypes observes everything that is known of the columns.
func (e *Env) columnTypes(label string, rows *sql.Rows) {
	types, err := rows.ColumnTypes()
	e.Err(label, err)
	for _, c := range types {
		length, hasLength := c.Length()
		precision, scale, hasScale := c.DecimalSize()
		nullable, hasNullable := c.Nullable()
		e.Value(label+" "+c.Name(), fmt.Sprint(c.ScanType()), c.DatabaseTypeName(),
			length, hasLength, precision, scale, hasScale, nullable, hasNullable)
	}
}

var columnCases = []Case{
	{"ColumnTypesAreTheDrivers", 0, func(e *Env) {
		e.Table("t", "a INT NOT NULL, b VARCHAR(20), c DECIMAL(10,2), d BLOB, f TIMESTAMP, g TEXT, h FLOAT, i BOOL")
		for _, text := range []string{"SELECT a, b, c, d, f, g, h, i FROM t", "SELECT 1 AS one, 'x' AS two, NULL AS three"} {
			rows, err := e.DB.Query(text)
			e.Must(err)
			e.columnTypes("direct", rows)
			e.Err("close", rows.Close())
			s := e.Prepare(e.DB, text)
			rows, err = s.Query()
			e.Must(err)
			e.columnTypes("prepared", rows)
			e.Err("close", rows.Close())
			e.Err("close", s.Close())
		}
	}},
	{"ColumnTypesFollowTheResultSet", Multi, func(e *Env) {
		rows, err := e.DB.Query(e.SQL.Multi)
		e.Must(err)
		e.columnTypes("first", rows)
		e.Value("next", rows.NextResultSet())
		e.columnTypes("second", rows)
		columns, err := rows.Columns()
		e.Value("columns", columns, err)
		e.Err("close", rows.Close())
	}},
	{"ColumnTypesAreKnownAfterTheLastRow", 0, func(e *Env) {
		rows, err := e.DB.Query("SELECT 1 AS one")
		e.Must(err)
		e.Value("next", rows.Next())
		e.columnTypes("at the row", rows)
		e.Value("next", rows.Next())
		_, err = rows.ColumnTypes()
		e.Err("after the last", err)
		e.Err("close", rows.Close())
	}},
	{"ColumnNamesBelongToTheCaller", 0, func(e *Env) {
		rows, err := e.DB.Query("SELECT 1 AS one, 2 AS two")
		e.Must(err)
		columns, err := rows.Columns()
		e.Value("columns", columns, err)
		again, err := rows.Columns()
		e.Value("again", again, err)
		e.Err("close", rows.Close())
	}},
}

// typeCases stores and reads back what the flavor lists.
var typeCases = []Case{
	{"ValuesOfEveryTypeComeBackAlike", 0, func(e *Env) {
		for i, v := range e.SQL.Values {
			table := fmt.Sprintf("types_%d", i)
			label := fmt.Sprintf("%d %s", i, v.Type)
			e.ownTable(table, "v "+v.Type)
			e.Exec(label+" insert", e.DB, "INSERT INTO "+table+" VALUES (?)", v.Value)
			e.Exec(label+" insert NULL", e.DB, "INSERT INTO "+table+" VALUES (?)", nil)
			e.Query(label+" select", e.DB, "SELECT v FROM "+table)
			e.scanInto(label, table, v)
			s := e.Prepare(e.DB, "SELECT v FROM "+table)
			rows, err := s.Query()
			e.Rows(label+" prepared", rows, err)
			e.Err(label+" close", s.Close())
			rows, err = e.DB.Query("SELECT v FROM " + table)
			e.Must(err)
			e.columnTypes(label+" type", rows)
			e.Err(label+" close", rows.Close())
		}
	}},
	{"ValuesOfEveryTypeComeBackInATransaction", 0, func(e *Env) {
		for i, v := range e.SQL.Values {
			table := fmt.Sprintf("txtypes_%d", i)
			e.ownTable(table, "v "+v.Type)
			tx := e.Begin(e.Ctx)
			insert := e.Prepare(tx, "INSERT INTO "+table+" VALUES (?)")
			res, err := insert.Exec(v.Value)
			e.Result(v.Type+" insert", res, err)
			e.Err(v.Type+" close", insert.Close())
			if err == nil {
				e.Query(v.Type+" select", tx, "SELECT v FROM "+table)
			}
			e.Err(v.Type+" rollback", tx.Rollback())
			e.Count(v.Type+" rows", e.DB, table)
		}
	}},
}

// ownTable makes a table whose types are the database's own.
func (e *Env) ownTable(name, columns string) {
	types := e.SQL.Types
	e.SQL.Types = nil
	defer func() { e.SQL.Types = types }()
	e.Table(name, columns)
}

func (e *Env) scanInto(label, table string, v TypedValue) {
	if v.Into == nil {
		return
	}
	rows, err := e.DB.Query("SELECT v FROM " + table)
	e.Must(err)
	for rows.Next() {
		dest := v.Into()
		err := rows.Scan(dest)
		e.Value(label+" into", pointee(dest), err)
	}
	e.Err(label+" end", rows.Err())
	e.Err(label+" close", rows.Close())
}
