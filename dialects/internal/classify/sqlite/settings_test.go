package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/classify"
)

func TestSettingsAreWhatAStatementSetsForItsConnection(t *testing.T) {
	for text, want := range map[string][]dialects.Setting{
		"PRAGMA foreign_keys = OFF":           {{Name: "PRAGMA foreign_keys", Text: "PRAGMA foreign_keys = OFF"}},
		" /* x */ pragma\nFOREIGN_KEYS(1) ; ": {{Name: "PRAGMA foreign_keys", Text: "pragma\nFOREIGN_KEYS(1)"}},
		"pragma main.cache_size=-10":          {{Name: "PRAGMA main.cache_size", Text: "pragma main.cache_size=-10"}},
		"pragma A.cache_size=1":               {{Name: "PRAGMA a.cache_size", Of: "ATTACH a", Text: "pragma A.cache_size=1"}},
		"pragma synchronous=off; pragma busy_timeout=1": {
			{Name: "PRAGMA synchronous", Text: "pragma synchronous=off"}, {Name: "PRAGMA busy_timeout", Text: "pragma busy_timeout=1"}},
		"attach database 'x''y.db' as A": {{Name: "ATTACH a", Text: "attach database 'x''y.db' as A", Undo: `DETACH "a"`}},
		"attach ? as 'a'":                {{Name: "ATTACH a", Text: "attach ? as 'a'", Undo: `DETACH "a"`}},
		"detach database a":              {{Name: "ATTACH a", Text: "detach database a", Ends: true, Undo: `ATTACH ':memory:' AS "a"`}},
		"pragma journal_mode=memory":     {{Name: "PRAGMA journal_mode", Text: "pragma journal_mode=memory"}},
		"pragma journal_mode('wal')":     {{Name: "PRAGMA journal_mode", Text: "pragma journal_mode('wal')", Ends: true}},

		"pragma main.journal_mode=off": {{Name: "PRAGMA journal_mode", Text: "pragma main.journal_mode=off"}},
		"attach cast('x' as text) as a key 'k'": {
			{Name: "ATTACH a", Text: "attach cast('x' as text) as a key 'k'", Undo: `DETACH "a"`}},

		"pragma journal_mode=Delete": {{Name: "PRAGMA journal_mode", Text: "pragma journal_mode=Delete", Default: true}},

		"pragma foreign_keys=on; create table t (a); create trigger x before delete on t begin select 1; end; insert into t values (1);": {
			{Name: "PRAGMA foreign_keys", Text: "pragma foreign_keys=on"}},
		"pragma foreign_keys=off; begin; drop table t; commit; pragma foreign_keys(1)": {
			{Name: "PRAGMA foreign_keys", Text: "pragma foreign_keys=off"}, {Name: "PRAGMA foreign_keys", Text: "pragma foreign_keys(1)"}},
		"pragma page_size=8192; vacuum": {{Name: "PRAGMA page_size", Text: "pragma page_size=8192"}},
		"pragma encoding='UTF-16'":      {{Name: "PRAGMA encoding", Text: "pragma encoding='UTF-16'"}},
		"pragma defer_foreign_keys = 1": {{Name: "PRAGMA defer_foreign_keys", Text: "pragma defer_foreign_keys = 1", NextTx: true}},
		"pragma Defer_Foreign_Keys('off');": {
			{Name: "PRAGMA defer_foreign_keys", Text: "pragma Defer_Foreign_Keys('off')", NextTx: true, Ends: true}},

		"pragma auto_vacuum = 1":                         {{Name: "PRAGMA auto_vacuum", Text: "pragma auto_vacuum = 1", ForVacuum: true}},
		"pragma HexKey = 'aa'":                           {{Name: "PRAGMA hexkey", Text: "pragma HexKey = 'aa'", Refusal: classify.ErrKey}},
		"pragma foreign_keys=1; create temp table t (a)": {{Name: "PRAGMA foreign_keys", Text: "pragma foreign_keys=1"}},
		"pragma foreign_keys=1; create trigger x before delete on t begin select": { // an error
			{Name: "PRAGMA foreign_keys", Text: "pragma foreign_keys=1"}},
		"create temp table t (a); pragma no_such_thing = 1; pragma foreign_keys=1": {
			{Name: "PRAGMA foreign_keys", Text: "pragma foreign_keys=1"}},

		"pragma a.auto_vacuum = 1":                                         nil,
		"attach 'x' as 'a' || 'b'":                                         nil,
		"attach 'x' as a.b":                                                nil,
		"pragma foreign_keys":                                              nil,
		"pragma table_info(t)":                                             nil,
		"pragma user_version = 5":                                          nil,
		"pragma defer_foreign_keys = 1; begin":                             nil,
		"pragma no_such_thing = 1":                                         nil,
		"begin; pragma foreign_keys=off":                                   nil,
		"create table t (a)":                                               nil,
		"pragma foreign_keys=1; begin; pragma foreign_keys=0; commit":      nil,
		"begin; savepoint a; rollback to a; pragma foreign_keys=0; commit": nil,
		"explain pragma foreign_keys=off":                                  nil,
		"attach 'x' as ?":                                                  nil,
		"attach 'x'":                                                       nil,
		"select 'pragma foreign_keys=off'":                                 nil,
		"pragma foreign_keys=off /* no end":                                nil,
		" pragma foreign_keys =":                                           {{Name: "PRAGMA foreign_keys"}}, // an error
		"":                                                                 nil,
	} {
		got, _, _ := Settings(text)
		require.Equal(t, want, got, text)
	}
}

func TestASettingIsAloneIfItsTextHasNoOtherStatement(t *testing.T) {
	for text, want := range map[string]bool{
		"attach ? as a":                             true,
		" attach ? as a /* b */ ; ; ":               true,
		"attach ? as a; attach ? as b":              false,
		"attach ? as a; insert into a.t values (?)": false,
	} {
		settings, alone, _ := Settings(text)
		require.NotEmpty(t, settings, text)
		require.Equal(t, want, alone, text)
	}
}

func TestATextIsCompleteIfItLeavesNothingElse(t *testing.T) {
	for text, want := range map[string]bool{
		"pragma foreign_keys=1; create table t (a)":      true,
		"pragma auto_vacuum=1; vacuum":                   true,
		"pragma foreign_keys=1; create temp table t (a)": false,
		"pragma foreign_keys=1; pragma no_such_thing=1":  false,
	} {
		settings, _, complete := Settings(text)
		require.NotEmpty(t, settings, text)
		require.Equal(t, want, complete, text)
	}
}

func TestTheFileOfAnAttach(t *testing.T) {
	for text, want := range map[string][2]string{
		"attach 'x''y' as a":                       {"'x''y'", "'x''y'"},
		"attach database x as a":                   {"x", "'x'"},
		"attach \"it's\" as a":                     {"\"it's\"", "'it''s'"},
		"attach /* x */ ?1 as a key 'k'":           {"?1", "?1"},
		"attach as a":                              {"", ""}, // an error
		"attach cast('x' as text) || 'y' as 'a b'": {"cast('x' as text) || 'y'", "cast('x' as text) || 'y'"},
	} {
		from, to, expr := AttachedFile(text)
		require.Equal(t, want, [2]string{text[from:to], expr}, text)
	}
}
