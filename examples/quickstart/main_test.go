package main

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // The program provokes warnings.
	goleak.VerifyTestMain(m)
}

func TestTheQuickStartShowsWhatItPromisesOnSQLite(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(&out, "", 20, 2, 3))
	for _, line := range []string{
		"  stock and orders     add up",
		"  forgotten BEGINs     1 rolled back",
		"    plain database/sql    hangs, stopped after 500ms with 0 products restocked: context deadline exceeded",
		"    in a task             8 products restocked",
		"    products              8 before, 0 in the transaction, 8 after the task's end",
		"    Stats().Rollbacks     1 more",
		"    both succeed          in the tables: 1 invoice, 1 letter",
		"    the second fails      in the tables: 1 invoice, 1 letter, as before",
		"  Real connections opened for all this: 1",
	} {
		require.Contains(t, out.String(), line+"\n")
	}
}

func TestTheQuickStartReportsADatabaseThatIsNotThere(t *testing.T) {
	var out strings.Builder
	err := run(&out, "postgres://app@127.0.0.1:1/shop", 1, 1, 1)
	require.ErrorContains(t, err, "pooldriver: connecting to")
}
