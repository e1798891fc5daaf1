//go:build odbc && cgo

package odbc

import (
	"context"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/generic"
)

// unknown is a database that did not say what it is. It behaves as under the generic dialect, with
// the driver's own transactions.
type unknown struct {
	defaults
	generic.Dialect
}

func (unknown) name() string { return "an unknown database" }

func (unknown) remote() bool { return false }

func (unknown) traits(common dialects.Traits) dialects.Traits { return common }

// diagnose knows what ODBC says for any database.
func (unknown) diagnose(err error) dialects.Diagnosis {
	switch {
	case serverLost(err):
		return dialects.ServerLeaving
	case hasState(err, "28000"):
		return dialects.AuthFailed
	}
	return 0
}

func (unknown) stale(error, string) bool { return false }

func (unknown) status(context.Context, *session) dialects.TxStatus { return dialects.TxUnknown }

func (unknown) clean(context.Context, *session, dialects.Effect) (bool, error) {
	return false, dialects.ErrCannotClean
}
