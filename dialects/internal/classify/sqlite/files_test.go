package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func mark(expr string) string { return "<" + expr + ">" }

func TestMapFilesFindsWhatNamesAFile(t *testing.T) {
	for text, want := range map[string]string{
		"attach '/f' as a":                                                        "attach <'/f'> as a",
		" /* x */ ATTACH DATABASE ?1 AS ?2 ;":                                     " /* x */ ATTACH DATABASE <?1> AS ?2 ;",
		"attach ? || '.db' as a key 'k'":                                          "attach <? || '.db'> as a key 'k'",
		"attach cast(x'2f66' as text) as a":                                       "attach <cast(x'2f66' as text)> as a",
		"attach '/a' -- x\n || 'b' /* y */ as a":                                  "attach <'/a' -- x\n || 'b'> /* y */ as a",
		"vacuum into '/f'":                                                        "vacuum into <'/f'>",
		"VACUUM main INTO :file -- backup":                                        "VACUUM main INTO <:file> -- backup",
		"vacuum \"into\" into '/' || strftime(?)":                                 "vacuum \"into\" into <'/' || strftime(?)>",
		"begin; attach '/a' as a; attach '/b' as b; select 1; vacuum into '/c'":   "begin; attach <'/a'> as a; attach <'/b'> as b; select 1; vacuum into <'/c'>",
		"create trigger x after insert on t begin select 1; end; attach 'f' as a": "create trigger x after insert on t begin select 1; end; attach <'f'> as a",
		// ATTACH takes a name for a string.
		`attach "/it's" as a`:    `attach <'/it''s'> as a`,
		`attach "a""b" as a`:     `attach <'a"b'> as a`,
		"attach [a]as b":         "attach <'a'>as b",
		"attach `f` as a":        "attach <'f'> as a",
		"attach f as a":          "attach <'f'> as a",
		"vacuum into null||'f'":  "vacuum into <null||'f'>",
		"attach f || 'x' as a":   "attach <f || 'x'> as a",
		`vacuum into "/f"`:       `vacuum into <"/f">`,
		"vacuum into f; vacuum;": "vacuum into <f>; vacuum;",
	} {
		require.Equal(t, want, MapFiles(text, mark), text)
	}
}

func TestMapFilesLeavesOtherTextsAsTheyAre(t *testing.T) {
	for _, text := range []string{
		"", "vacuum", "vacuum main", "vacuum into", "vacuum; select 1", "vacuum main; values (1)", "attach; select 1 as a", "vacuum into; select 1", "attach", "attach '/f'", "attach 'f' to a", "attach as a", "detach a", "attach NULL as a", "VACUUM INTO NULL",
		"select 'attach ''/f'' as a; vacuum into ''/f'''", "insert into t values (1)", "select a as attach from t",
		"-- attach '/f' as a", "explain attach '/f' as a", "create table vacuum (\"into\")",
	} {
		require.Equal(t, text, MapFiles(text, mark), text)
		require.Zero(t, testing.AllocsPerRun(10, func() { MapFiles(text, mark) }), text)
	}
}
