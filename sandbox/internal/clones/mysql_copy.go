package clones

import (
	"context"
	"strings"
)

// recipe is how a template of MySQL or MariaDB is made again in another database: the statements
// that create its tables as they are now, and their rows. That is less work for the server than
// the migrations, which create a table and change it later.
type recipe struct {
	template string
	defaults string // the character set and collation of the database, as in CREATE DATABASE
	tables   []tableRecipe
	// complete says that the template has nothing else: no view, trigger, routine, event or
	// sequence. Their definitions name databases and users, and cannot be moved safely.
	complete bool
}

type tableRecipe struct {
	name    string // quoted
	create  string // what follows the name in CREATE TABLE
	columns string // the columns that can be inserted; empty if the table has no rows
}

func (s *mysql) readRecipe(ctx context.Context) (recipe, error) {
	r := recipe{template: s.template}
	var charset, collation string
	if err := s.conn.QueryRowContext(ctx, `SELECT default_character_set_name, default_collation_name
		FROM information_schema.schemata WHERE schema_name = ?`, s.template).Scan(&charset, &collation); err != nil {
		return r, err
	}
	r.defaults = " CHARACTER SET " + charset + " COLLATE " + collation
	var others int
	if err := s.conn.QueryRowContext(ctx, `SELECT
		(SELECT count(*) FROM information_schema.tables WHERE table_schema = ? AND table_type <> 'BASE TABLE')
		+ (SELECT count(*) FROM information_schema.triggers WHERE trigger_schema = ?)
		+ (SELECT count(*) FROM information_schema.routines WHERE routine_schema = ?)
		+ (SELECT count(*) FROM information_schema.events WHERE event_schema = ?)`,
		s.template, s.template, s.template, s.template).Scan(&others); err != nil {
		return r, err
	}
	if others > 0 {
		return r, nil
	}
	names, err := s.list(ctx, "SELECT table_name FROM information_schema.tables WHERE table_schema = ? AND table_name <> ?", s.template, noteTable)
	if err != nil {
		return r, err
	}
	for _, name := range names {
		t, err := s.readTable(ctx, name)
		if err != nil {
			return r, err
		}
		r.tables = append(r.tables, t)
	}
	r.complete = true
	return r, nil
}

func (s *mysql) readTable(ctx context.Context, name string) (tableRecipe, error) {
	t := tableRecipe{name: quote(name)}
	var same, create string
	if err := s.conn.QueryRowContext(ctx, "SHOW CREATE TABLE "+s.template+"."+t.name).Scan(&same, &create); err != nil {
		return t, err
	}
	t.create = strings.TrimPrefix(create, "CREATE TABLE "+t.name)
	var filled bool
	if err := s.conn.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM "+s.template+"."+t.name+")").Scan(&filled); err != nil || !filled {
		return t, err
	}
	columns, err := s.list(ctx, `SELECT column_name FROM information_schema.columns
		WHERE table_schema = ? AND table_name = ? AND coalesce(generation_expression, '') = ''`, s.template, name)
	for i := range columns {
		columns[i] = quote(columns[i])
	}
	t.columns = strings.Join(columns, ", ")
	return t, err
}

// statements make the database name, in a session whose checks they switch off.
func (r *recipe) statements(name string) []string {
	// Tables may refer to tables that come later.
	statements := []string{"CREATE DATABASE " + name + r.defaults, "SET foreign_key_checks = 0, unique_checks = 0"}
	for _, t := range r.tables {
		statements = append(statements, "CREATE TABLE "+name+"."+t.name+t.create)
	}
	for _, t := range r.tables {
		if t.columns != "" {
			statements = append(statements, "INSERT INTO "+name+"."+t.name+" ("+t.columns+") SELECT "+t.columns+" FROM "+r.template+"."+t.name)
		}
	}
	return statements
}

func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }
