package postgres

import (
	"math/rand/v2"
	"strconv"

	"github.com/pooldriver/pooldriver/dialects"
)

// Cleaning is the text that cleans a session after statements with that effect. An unknown function
// may have set the seed of random(). Nothing restores the old seed, so the cleaning sets a new one. If
// texts may have been read in another way, the plans of functions go: a session keeps them with the
// literals that it has read.
func Cleaning(effect dialects.Effect) string {
	text := cleaning
	if effect&dialects.Rereads != 0 {
		text += "; DISCARD PLANS"
	}
	if effect&dialects.Suspect != 0 {
		text += "; SELECT pg_catalog.setseed(" + strconv.FormatFloat(2*rand.Float64()-1, 'f', -1, 64) + ")"
	}
	return text
}

// cleaning has the parts of DISCARD ALL, except the two parts that would remove the prepared
// statements and all plans, in one round trip. The statements run in one implicit transaction.
// DISCARD ALL itself refuses to run in a transaction.
//
// The order matters: a weaker role may lack some rights, so the connection's own user comes back
// first. RESET ALL does not touch the role. RESET ROLE sets it back to the role with which the
// connection began (the parameter options, or ALTER ROLE). RESET goes back to the settings of the
// DSN.
const cleaning = "CLOSE ALL; " +
	"SET SESSION AUTHORIZATION DEFAULT; " +
	"RESET ROLE; " +
	"RESET ALL; " +
	"UNLISTEN *; " +
	"SELECT pg_advisory_unlock_all(); " +
	"DISCARD TEMP; " +
	"DISCARD SEQUENCES"

// losesPrepared are the effects after which the prepared statements cannot be
// trusted: there may be statements that the driver does not know, some may be gone, or they may
// mean something else. The server plans them anew when the search path changes, but their
// parameters keep the old types. A function or a DO block may have done any of this.
const losesPrepared = dialects.Suspect | dialects.ForgetPrepared | dialects.NamedPrepared

// KeepsPrepared reports whether prepared statements are unchanged after statements with
// that effect. For the zero effect it is false: a program that cleans after it
// (ResetAlways) does not trust the classifier.
func KeepsPrepared(effect dialects.Effect) bool {
	return effect != dialects.Clean && effect&losesPrepared == 0
}
