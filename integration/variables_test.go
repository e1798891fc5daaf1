package integration

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// A sweep sets every variable of a session to another value, and asks texts with literals: in the
// session that has it, in the same session later, and in the next borrower's. The answers are those
// of a new connection of the bare driver that prepares each text.

// variable is a variable of a session with statements that change it.
type variable struct{ name, set, local, reset, value string }

// sweep asks one server.
type sweep struct {
	*testing.T
	d      database
	texts  []string
	before []string // the answers of a session as it is at connect
	tag    string   // in the texts of ask: no statement for them is there when a variable's turn comes
	asked  int
}

// ask returns what the server answers to each text.
func (s *sweep) ask(ctx context.Context, q querier) []string {
	answers := make([]string, len(s.texts))
	_, inTx := q.(*sql.Tx)
	inTx = inTx && s.d.kind == "postgres"
	for i, text := range s.texts {
		if inTx {
			mustExec(s, q, "SAVEPOINT asked")
		}
		s.asked++
		rows, err := q.QueryContext(ctx, text+s.tag, 1)
		answers[i] = answerOf(rows, err)
		if inTx {
			mustExec(s, q, "ROLLBACK TO SAVEPOINT asked")
		}
	}
	return answers
}

// answerOf is what the rows of a query say, or its error.
func answerOf(rows *sql.Rows, err error) (answer string) {
	if err != nil {
		return "error: " + err.Error()
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var column sql.NullString
		if err := rows.Scan(&column); err != nil {
			return "error: " + err.Error()
		}
		answer += fmt.Sprintf("%q %v;", column.String, column.Valid)
	}
	if rows.Err() != nil {
		return answer + "error: " + rows.Err().Error()
	}
	return answer
}

// same compares the answers of the texts.
func (s *sweep) same(want, got []string, v variable, when string) {
	s.Helper()
	for i, text := range s.texts {
		assert.Equal(s, want[i], got[i], "%s: %s\n%s", v.set, when, text)
	}
}

// judge is what the bare driver answers, on a new connection, after v was set and after it was set
// back. ok: the server lets v be set.
func (s *sweep) judge(db *sql.DB, v variable) (set, reset []string, ok bool) {
	conn, err := db.Conn(s.Context())
	require.NoError(s, err)
	defer func() { _ = conn.Close() }() // db keeps no idle connection
	if _, err = conn.ExecContext(s.Context(), v.set); err != nil {
		return nil, nil, false
	}
	set = s.ask(s.Context(), conn)
	if _, err = conn.ExecContext(s.Context(), v.reset); err == nil {
		reset = s.ask(s.Context(), conn)
	}
	return set, reset, true
}

// sweptFront is a pool of one connection, with statements that were prepared before everything else.
type sweptFront struct {
	name  string
	db    *sql.DB
	stmts []*sql.Stmt
}

func (s *sweep) open(name string) *sweptFront {
	d := s.d
	d.wrap = name == "Wrap"
	f := &sweptFront{name: name}
	f.db, _ = d.open(s, 1)
	for _, text := range s.texts {
		stmt, err := f.db.Prepare(text)
		require.NoError(s, err, text)
		f.stmts = append(f.stmts, stmt)
	}
	return f
}

// askPrepared is ask by the statements that are prepared.
func (s *sweep) askPrepared(ctx context.Context, f *sweptFront) []string {
	answers := make([]string, len(f.stmts))
	for i, stmt := range f.stmts {
		s.asked++
		answers[i] = answerOf(stmt.QueryContext(ctx, 1))
	}
	return answers
}

// forms are the ways to set a variable. set and reset are the judge's answers.
var forms = []struct {
	name string
	run  func(s *sweep, f *sweptFront, v variable, set, reset []string)
}{
	{"a task", func(s *sweep, f *sweptFront, v variable, set, _ []string) {
		ctx, end := pooldriver.WithTask(s.Context())
		defer end()
		_, err := f.db.ExecContext(ctx, v.set)
		require.NoError(s, err, v.set)
		s.same(set, s.ask(ctx, f.db), v, "in the task")
		if s.d.kind == "postgres" { // elsewhere a statement may be refused after a SET
			s.same(set, s.askPrepared(ctx, f), v, "prepared before, in the task")
		}
		s.same(set, s.ask(ctx, f.db), v, "in the task again")
	}},
	{"a session", func(s *sweep, f *sweptFront, v variable, set, reset []string) {
		conn, err := f.db.Conn(s.Context())
		require.NoError(s, err)
		defer func() { require.NoError(s, conn.Close()) }()
		s.same(s.before, s.ask(s.Context(), conn), v, "at the beginning of the session")
		for range randomtest.Rounds(1, 2) {
			mustExec(s, conn, v.set)
			s.same(set, s.ask(s.Context(), conn), v, "in the session")
			if reset != nil {
				mustExec(s, conn, v.reset)
				s.same(reset, s.ask(s.Context(), conn), v, "in the session, after "+v.reset)
			}
		}
	}},
	{"a transaction", func(s *sweep, f *sweptFront, v variable, set, _ []string) {
		if v.local == "" {
			return
		}
		tx, err := f.db.Begin()
		require.NoError(s, err)
		if _, err = tx.Exec(v.local); err == nil {
			s.same(set, s.ask(s.Context(), tx), v, "local to a transaction")
		}
		require.NoError(s, tx.Rollback())
	}},
	{"a context", func(s *sweep, f *sweptFront, v variable, set, _ []string) {
		if v.local == "" {
			return
		}
		ctx := pooldriver.WithSettings(s.Context(), pooldriver.Settings{strings.ToLower(v.name): v.value})
		if _, err := f.db.ExecContext(ctx, "SELECT 1"); err != nil {
			require.ErrorContains(s, err, "is not allowed")
			return
		}
		for range randomtest.Rounds(1, 2) {
			s.same(set, s.ask(ctx, f.db), v, "by the context")
			s.same(set, s.askPrepared(ctx, f), v, "prepared before, by the context")
		}
		tx, err := f.db.BeginTx(ctx, nil)
		require.NoError(s, err)
		s.same(set, s.ask(s.Context(), tx), v, "by the context of a transaction")
		require.NoError(s, tx.Commit())
	}},
}

// try sets one variable in each form.
func (s *sweep) try(f *sweptFront, v variable, set, reset []string) {
	s.tag = " /* " + v.name + " */"
	defer func() { s.tag = "" }()
	for _, form := range forms {
		form.run(s, f, v, set, reset)
		for range randomtest.Rounds(1, 2) {
			s.same(s.before, s.ask(s.Context(), f.db), v, "by "+f.name+", after "+form.name)
		}
		s.same(s.before, s.askPrepared(s.Context(), f), v, "prepared before, by "+f.name+", after "+form.name)
	}
}

// chosen are the variables of one run: the ones that are known to matter, and some others.
func chosen(r *rand.Rand, all []variable, matter []string) []variable {
	if randomtest.Long() {
		return all
	}
	var list, rest []variable
	for _, v := range all {
		if slices.Contains(matter, strings.ToLower(v.name)) {
			list = append(list, v)
		} else {
			rest = append(rest, v)
		}
	}
	r.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	return append(list, rest[:min(5, len(rest))]...)
}

func TestNoSessionVariableReachesAStatement(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, d database) {
		r := randomtest.Seeded(t)
		s := &sweep{T: t, d: d}
		var all []variable
		var matter []string
		if d.kind == "postgres" {
			s.texts, all, matter = postgresSweep(t, d)
			d.parameters = []string{"default_query_exec_mode=describe_exec"}
		} else {
			s.texts, all, matter = mySQLSweep(t, d)
		}
		bare := d.openBare(t, 1)
		bare.SetMaxIdleConns(0)
		s.before = s.ask(t.Context(), bare)
		fronts := []*sweptFront{s.open("New"), s.open("Wrap")}
		tried, differ := 0, map[string]bool{}
		for _, v := range chosen(r, all, matter) {
			set, reset, ok := s.judge(bare, v)
			if !ok {
				continue
			}
			tried++
			if !slices.Equal(set, s.before) {
				differ[v.name] = true
			}
			for _, f := range fronts {
				s.try(f, v, set, reset)
			}
		}
		t.Logf("%d variables, %d texts, %d answers; %d variables change an answer: %v", tried, len(s.texts), s.asked, len(differ), slices.Sorted(maps.Keys(differ)))
		require.GreaterOrEqual(t, len(differ), len(matter)/2, "the texts must show the variables")
		if randomtest.Long() {
			require.GreaterOrEqual(t, tried, 100)
		}
	})
}
