package conformance

import (
	"errors"
	"slices"
)

// errBoom is the error that faults answer with.
var errBoom = errors.New("boom")

// Cases returns the table of all cases.
func Cases() []Case {
	return slices.Concat(
		execCases, argumentCases, valuerCases, queryCases, rowsCases, scanCases, columnCases, typeCases, emptyCases,
		prepareCases, txStmtCases, txCases, txEndCases, connCases, pingCases, poolCases, closeCases,
		badConnCases, resetCases, cancelCases, cancelledCases, panicCases, concurrencyCases,
	)
}
