package conformance

import (
	"database/sql"
	"fmt"
)

// A value of length zero is not NULL. Drivers tell the two apart by a slice that
// is empty and one that is nil, which code that copies bytes easily loses.

// witness is a Scanner that describes what it is given at once: the memory is the
// driver's.
type witness struct{ seen string }

func (w *witness) Scan(v any) error {
	w.seen = describe(v)
	return nil
}

// emptiness is a row of one combination of NULL, nothing and something.
type emptiness struct {
	a    int
	name string
}

// empties makes the table empties, with a row for every combination of NULL, a
// value of length zero and another one, in three columns.
func (e *Env) empties() (rows []emptiness) {
	e.Table("empties", "a INT, b TEXT, c BLOB, d VARCHAR(20)")
	texts, bytes := []any{nil, "", "text"}, []any{nil, []byte{}, []byte("bytes")}
	names := []string{"NULL", "empty", "full"}
	for i := range 27 {
		b, c, d := i/9, i/3%3, i%3
		e.Exec("insert", e.DB, "INSERT INTO empties VALUES (?, ?, ?, ?)", i, texts[b], bytes[c], texts[d])
		rows = append(rows, emptiness{i, fmt.Sprintf("%s, %s, %s", names[b], names[c], names[d])})
	}
	return rows
}

// Bytes, text and NULL in each place of a row.
const (
	oneEmpty   = "SELECT c, b, d, c FROM empties WHERE a = ?"
	allEmpties = "SELECT b, c, d, c FROM empties"
)

// destinations are what a value may be scanned into.
var destinations = []struct {
	kind  string
	fresh func() any
}{
	{"any", func() any { return new(any) }},
	{"[]byte", func() any { return new([]byte) }},
	{"*[]byte", func() any { return new(*[]byte) }},
	{"a type of bytes", func() any { return new(myBytes) }},
	{"string", func() any { return new(string) }},
	{"*string", func() any { return new(*string) }},
	{"sql.NullString", func() any { return new(sql.NullString) }},
	{"sql.Null[[]byte]", func() any { return new(sql.Null[[]byte]) }},
	{"a Scanner", func() any { return new(witness) }},
	{"sql.RawBytes", func() any { return new(sql.RawBytes) }}, // the last: no Scan may follow it
}

// empty observes the rows, each scanned into every kind of destination.
func (e *Env) empty(label string, rows *sql.Rows, err error) {
	e.emptyInto(label, rows, err, func(_, _ int) bool { return true })
}

// emptyInto is empty with the kinds of destinations that are chosen for each row.
func (e *Env) emptyInto(label string, rows *sql.Rows, err error, chosen func(into, row int) bool) {
	e.Err(label, err)
	if err != nil {
		return
	}
	columns, err := rows.Columns()
	e.Must(err)
	for row := 0; rows.Next(); row++ {
		for i, d := range destinations {
			if !chosen(i, row) {
				continue
			}
			dest, seen := make([]any, len(columns)), make([]any, len(columns))
			for i := range dest {
				dest[i] = d.fresh()
			}
			err := rows.Scan(dest...)
			for i := range dest {
				seen[i] = pointee(dest[i])
			}
			e.Value(label+" into "+d.kind, append(seen, err)...)
		}
	}
	e.Err(label+", end", rows.Err())
	e.Err(label+", close", rows.Close())
}

var emptyCases = []Case{
	{"EmptyValuesAreNotNull", 0, func(e *Env) {
		all := e.empties()
		one := e.SQL.rebind(oneEmpty)
		s := e.Prepare(e.DB, oneEmpty)
		for _, row := range all {
			rows, err := e.DB.Query(one, row.a)
			e.empty(row.name, rows, err)
			rows, err = s.Query(row.a)
			e.empty(row.name+", prepared", rows, err)
		}
		e.Err("close", s.Close())
		tx := e.Begin(e.Ctx)
		rows, err := tx.Query(allEmpties)
		e.empty("in a transaction", rows, err)
		e.Err("rollback", tx.Rollback())
		rows, err = e.DB.Query(allEmpties)
		e.empty("all", rows, err)
	}},
	{"EmptyLiteralsAreNotNull", 0, func(e *Env) {
		for _, text := range []string{"SELECT ''", "SELECT NULL", "SELECT '', NULL, ''", "SELECT NULL, '', 'x'", "SELECT 1, '', ''"} {
			rows, err := e.DB.Query(text)
			e.empty(text, rows, err)
			s := e.Prepare(e.DB, text)
			rows, err = s.Query()
			e.empty(text+", prepared", rows, err)
			e.Err("close", s.Close())
		}
	}},
	{"EmptyValuesOfRowsReadLaterAreNotNull", 0, func(e *Env) {
		// So many are open at a time that a pool of ten has to read some of them
		// ahead.
		all := e.empties()
		open := make([]*sql.Rows, len(all))
		for i, row := range all {
			rows, err := e.DB.Query(e.SQL.rebind(oneEmpty), row.a)
			e.Must(err)
			e.Later(func() { _ = rows.Close() })
			open[i] = rows
		}
		for i, row := range all {
			e.empty(row.name, open[i], nil)
		}
		e.Idle()
	}},
	{"EmptyValuesOfRowsReadInPartAreNotNull", 0, func(e *Env) {
		e.empties()
		const most = 12
		var open [most]*sql.Rows
		for i := range open {
			rows, err := e.DB.Query(allEmpties)
			e.Must(err)
			e.Later(func() { _ = rows.Close() })
			for range i {
				e.Value("next", rows.Next())
			}
			open[i] = rows
		}
		// One kind of destination for a row, another one in each of the reads. The case
		// before this one has them all.
		for i, rows := range open {
			e.emptyInto(fmt.Sprintf("after %d", i), rows, nil, func(into, row int) bool {
				return (i+i+row)%len(destinations) == into
			})
		}
		e.Idle()
	}},
	{"EmptyValuesOfEveryTypeComeBackAlike", 0, func(e *Env) {
		for i, v := range e.SQL.Values {
			table := fmt.Sprintf("emptytypes_%d", i)
			e.ownTable(table, "v "+v.Type)
			for _, arg := range []any{nil, "", []byte{}, []byte(nil), sql.NullString{}, sql.NullString{Valid: true}} {
				label := fmt.Sprintf("%d %s %s", i, v.Type, describe(arg))
				e.Exec(label+" insert", e.DB, "INSERT INTO "+table+" VALUES (?)", arg)
				rows, err := e.DB.Query("SELECT v FROM " + table)
				e.empty(label, rows, err)
				e.Do(e.DB, "DELETE FROM "+table)
			}
		}
	}},
}
