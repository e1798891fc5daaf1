// Command pooldriver looks at connection pools from a terminal.
//
//	pooldriver top http://localhost:6060/debug/pool       who holds connections, and who waits
//	pooldriver explain 'postgres://…'                     what a DSN means, without its password
//	pooldriver explain --query 'SELECT 1' 'postgres://…'  whether a query may be in a pipeline
//	pooldriver doctor 'postgres://…'                      what does not fit: limits, timeouts, poolers
//	pooldriver version                                    which version this is
package main

import (
	"errors"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	_ "github.com/pooldriver/pooldriver/dialects/mysql"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	_ "github.com/pooldriver/pooldriver/dialects/sqlite"
)

// cli is the command line.
type cli struct {
	Top     top           `cmd:"" help:"Show a pool's inspector in the terminal, again every second."`
	Explain explain       `cmd:"" help:"Say what a DSN means: servers, settings, defaults. It connects to nothing and prints no password."`
	Doctor  doctorCommand `cmd:"" help:"Examine a server as the program would use it, or a program's pool, and say what does not fit."`
	Version version       `cmd:"" help:"Say which version this is."`
}

func main() {
	var c cli
	k := kong.Parse(&c,
		kong.Name("pooldriver"),
		kong.Description("Looks at connection pools of github.com/pooldriver/pooldriver."),
		kong.BindTo(io.Writer(os.Stdout), (*io.Writer)(nil)))
	err := k.Run()
	if ill, ok := errors.AsType[ailing](err); ok { // the report says why
		os.Exit(ill.ExitCode())
	}
	k.FatalIfErrorf(unprefixed(err))
}

// unprefixed returns err without the library's prefix: kong prints the name of the command, which
// is the same.
func unprefixed(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.TrimPrefix(err.Error(), "pooldriver: "))
}
