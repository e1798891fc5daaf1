package dialects

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatManipulatesDataOnly(t *testing.T) {
	for query, only := range map[string]bool{
		"SELECT 1":                           true,
		" (select 1) union select":           true,
		"Insert\tinto t values (1);":         true,
		"with a as (select 1) delete from t": true,
		"update t set a = 'a;b'":             false,
		"select 1; drop table t":             false,
		"alter table t add b int":            false,
		"/* why */ select 1":                 false,
		"selection":                          false,
		"select":                             false,
		"":                                   false,
	} {
		require.Equal(t, only, OnlyData(query), query)
	}
}

func TestWhatARollbackLeaves(t *testing.T) {
	for query, leaves := range map[string]bool{
		"SELECT SetVal('s', 1)": true,
		"SELECT pg_catalog.pg_logical_emit_message(false, 'a', 'b')": true,
		`SELECT U&"set\0076al"('s', 1)`:                              true,
		"INSERT INTO t (a) VALUES (nextval('s'))":                    false,
	} {
		require.Equal(t, leaves, OutlastsRollback(query), query)
	}
}
