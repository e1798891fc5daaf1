package postgres

import (
	"math/rand/v2"
	"strconv"

	"github.com/pooldriver/pooldriver/dialects"
)

// Cleaning is the text that cleans a session after statements with that effect. An unknown
// function may have set the seed of random(), which nothing sets back: it gets a new one.
func Cleaning(effect dialects.Effect) string {
	if effect&dialects.Suspect == 0 {
		return cleaning
	}
	return cleaning + "; SELECT pg_catalog.setseed(" + strconv.FormatFloat(2*rand.Float64()-1, 'f', -1, 64) + ")"
}

// cleaning is what DISCARD ALL consists of, less the two parts that would take
// the prepared statements and their plans with it, in one round trip. The
// statements run in one implicit transaction, which DISCARD ALL itself refuses.
//
// The order matters: what a role of less power may not do is done after the
// connection's own user is back. RESET ALL does not touch the role, which RESET
// ROLE sets back to what the connection began with (the parameter options, or
// ALTER ROLE). Settings from the DSN are the ones that RESET goes back to.
const cleaning = "CLOSE ALL; " +
	"SET SESSION AUTHORIZATION DEFAULT; " +
	"RESET ROLE; " +
	"RESET ALL; " +
	"UNLISTEN *; " +
	"SELECT pg_advisory_unlock_all(); " +
	"DISCARD TEMP; " +
	"DISCARD SEQUENCES"

// losesPrepared are the effects after which the prepared statements cannot be
// trusted: there may be some which the driver does not know of, some may be
// gone, or they may mean something else. The server plans them anew when the
// search path changes, but the types of their parameters stay those of old. A
// function or a DO block may have done any of it.
const losesPrepared = dialects.Suspect | dialects.ForgetPrepared | dialects.NamedPrepared

// KeepsPrepared reports whether prepared statements are unchanged after statements with
// that effect. For the zero effect it is false: a program that cleans after it
// (ResetAlways) does not trust the classifier.
func KeepsPrepared(effect dialects.Effect) bool {
	return effect != dialects.Clean && effect&losesPrepared == 0
}
