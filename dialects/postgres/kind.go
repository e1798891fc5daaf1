package postgres

import (
	"strconv"
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
	classifier "github.com/pooldriver/pooldriver/dialects/internal/classify/postgres"
)

// kind is what differs between servers that speak PostgreSQL's protocol. A session finds its kind
// by what the server has reported at login. Texts and errors are judged before a session is known:
// Effect and Diagnose serve all kinds.
type kind interface {
	// cleaning is the text that brings a session back to its state at connect, after statements with
	// that effect; empty: the session is closed instead. keepsPrepared: prepared statements stay.
	cleaning(effect dialects.Effect) (text string, keepsPrepared bool)
	// asksRole is a query for one row: whether the server is a standby, and the default of
	// default_transaction_read_only.
	asksRole() string
}

// kindOf is the kind of the server that has reported these parameters.
func kindOf(parameter func(name string) string) kind {
	if version := parameter("crdb_version"); version != "" {
		return cockroach{discards: cockroachMajor(version) >= discardsSince}
	}
	return postgres{}
}

// postgres is PostgreSQL, and every server that reports nothing else.
type postgres struct{}

func (postgres) cleaning(effect dialects.Effect) (text string, keepsPrepared bool) {
	return classifier.Cleaning(effect), classifier.KeepsPrepared(effect)
}

// asksRole asks for the setting as it would be after a RESET: a setting that the program has made
// in its session says nothing about the server. A change of the configuration also changes this
// value in open sessions (guc.c, set_config_option).
func (postgres) asksRole() string {
	return "SELECT pg_catalog.pg_is_in_recovery(), reset_val FROM pg_catalog.pg_settings WHERE name = 'default_transaction_read_only'"
}

// cockroach is CockroachDB, by its documentation and by cockroachdb/cockroach#83061: no version is
// available for the tests. Its nodes are no standbys. It has no UNLISTEN, and its DISCARD ALL drops
// temporary tables since version 23.1.
type cockroach struct{ discards bool }

const discardsSince = 23

// cockroachMajor is the first number of "CockroachDB CCL v23.1.2 (…)", or 0.
func cockroachMajor(version string) int {
	_, numbers, _ := strings.Cut(version, " v")
	major, _, _ := strings.Cut(numbers, ".")
	n, err := strconv.Atoi(major)
	if err != nil {
		return 0
	}
	return n
}

func (c cockroach) cleaning(dialects.Effect) (text string, keepsPrepared bool) {
	if !c.discards {
		return "", false
	}
	return "DISCARD ALL", false
}

func (cockroach) asksRole() string {
	return "SELECT false, reset_val FROM pg_catalog.pg_settings WHERE name = 'default_transaction_read_only'"
}
