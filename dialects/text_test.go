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
