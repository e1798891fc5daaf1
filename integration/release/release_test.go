// Package release has the tests of what users install: the modules as a module proxy serves
// them, and the programs of the README.
package release

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.Run(m)) }

// TestWhatTheReadmeSaysCanBeInstalledAndRun: in an empty module, from a proxy that serves the tags of
// the tree's release.
func TestWhatTheReadmeSaysCanBeInstalledAndRun(t *testing.T) {
	p := newProxy(t)
	version := p.release(t, p.next(t))
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	_, err := account.OpenBare(t).Exec("CREATE TABLE orders (id integer)")
	require.NoError(t, err)
	for _, toolchain := range toolchains() {
		t.Run(toolchain, func(t *testing.T) {
			user := p.newUser(t, toolchain)
			t.Run("the README's program", func(t *testing.T) {
				dir := user.module(t)
				require.Contains(t, user.followReadme(t, dir, account.URL()), "0 orders")
				require.Contains(t, user.run(t, dir, "go", "list", "-m", root), version)
				user.run(t, dir, "go", "vet", ".")
			})
			t.Run("the command", func(t *testing.T) {
				said := user.run(t, t.TempDir(), "go", "run", root+"/cmd/pooldriver@"+version, "explain", "postgres://app:hunter2@db/shop?pool_max_conns=20")
				require.Regexp(t, `pool_max_conns +20`, said)
				require.NotContains(t, said, "hunter2")
				said = user.run(t, t.TempDir(), "go", "run", root+"/cmd/pooldriver@"+version, "version")
				require.Contains(t, said, "pooldriver "+version+", with the library "+version)
			})
			for module, program := range map[string]string{"otelpooldriver": otelProgram, "pgxpooldriver": pgxProgram, "prompooldriver": promProgram, "riverpooldriver": riverProgram} {
				t.Run(module, func(t *testing.T) {
					dir := user.module(t)
					save(t, dir, program)
					user.run(t, dir, "go", "get", root+"/"+module+"@"+version)
					user.run(t, dir, "go", "mod", "tidy")
					user.run(t, dir, "go", "vet", ".")
					require.Contains(t, user.run(t, dir, "go", "run", "."), "registered")
				})
			}
		})
	}
}

// TestTheQuickStartRunsOnServers: as the README says, with the DSN of a server.
func TestTheQuickStartRunsOnServers(t *testing.T) {
	for _, kind := range []testbed.Engine{testbed.Postgres, testbed.MariaDB} {
		account := testbed.Shared(t, kind).NewAccount(t)
		c := exec.Command("go", "run", "./examples/quickstart", account.URL())
		c.Dir = "../.."
		said, err := c.CombinedOutput()
		require.NoError(t, err, string(said))
		require.Contains(t, string(said), "  stock and orders     add up\n")
		require.Contains(t, string(said), "  Real connections opened for all this: 1\n")
	}
}

const otelProgram = `package main

import (
	"fmt"
	"log"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/sqlite"
	"github.com/pooldriver/pooldriver/otelpooldriver"
)

func main() {
	connector := pooldriver.New("sqlite::memory:")
	defer connector.Close()
	if _, err := otelpooldriver.Register(connector); err != nil {
		log.Fatal(err)
	}
	fmt.Println("registered")
}
`

const promProgram = `package main

import (
	"fmt"
	"log"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/sqlite"
	"github.com/pooldriver/pooldriver/prompooldriver"
)

func main() {
	connector := pooldriver.New("sqlite::memory:")
	defer connector.Close()
	if err := prometheus.Register(prompooldriver.NewCollector(connector, "shop")); err != nil {
		log.Fatal(err)
	}
	fmt.Println("registered")
}
`

const pgxProgram = `package main

import (
	"fmt"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	"github.com/pooldriver/pooldriver/pgxpooldriver"
)

func main() {
	pool := pgxpooldriver.New(pooldriver.New("postgres://app@localhost/shop?pool_max_conns=7"))
	defer pool.Close()
	fmt.Println("registered", pool.Stat().MaxConns())
}
`

const riverProgram = `package main

import (
	"fmt"
	"log"

	"github.com/riverqueue/river"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	"github.com/pooldriver/pooldriver/pgxpooldriver"
	"github.com/pooldriver/pooldriver/riverpooldriver"
)

func main() {
	pool := pgxpooldriver.New(pooldriver.New("postgres://app@localhost/shop"))
	defer pool.Close()
	client, err := river.NewClient(riverpooldriver.New(pool), &river.Config{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("registered", client.ID() != "")
}
`
