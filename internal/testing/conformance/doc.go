// Package conformance is the definition of "transparent": one table of cases,
// each of which observes something of database/sql over a driver. A case runs
// on the bare driver and on the same driver behind a wrapper, each time on a
// database of its own, and writes down what it sees: results, types, error
// texts, what errors.Is says, what the server says. The two lists must be
// equal.
//
// Where they may differ is a closed list, [Differences], which mirrors
// docs/transparency.md: each entry names the case, the one observation in it
// and what it may become.
//
// The cases run over every shape of the fake driver, see [Fake], and over real
// databases, whose SQL is in a [Flavor].
package conformance
