// Package inspect shows who holds the connections of a pooldriver.Connector, since when,
// and who waits for them: as a page for people and as JSON for programs.
//
//	connector := pooldriver.New(dsn)
//	http.Handle("/debug/pool", inspect.Handler(connector))
//	http.Handle("/debug/pprof/pooldriver", inspect.Profile(connector))
//
// The page shows labels, call sites and statements without their literals. It shows no
// password, no argument and no literal. Both handlers answer requests of this machine
// only, unless [Inspector.Allow] says otherwise.
//
// The package uses only the standard library. The page loads nothing from elsewhere. It also works
// without scripts, but then it does not refresh itself.
package inspect
