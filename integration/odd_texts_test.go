package integration

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// oddities are what texts are made of whose quotes and comments can be read in more than
// one way.
type oddities struct {
	items  []string // of a list: literals and comments
	pieces []string // that are put in anywhere
	plants []string // items; each sets what found finds
	modes  []string // statements that change how texts are read
	clear  string
	found  string
}

var commonOddities = oddities{
	items: oddPieces(`1 'a' '' '''' 'a\' 'a\'' 'a\\' 'a"' '/*' '*/' '--' "a" "" "a\" "a\"" "a'" "/*" "--" /*␣'␣*/1 /*"*/1 /*/**/1
		--␣'↵1 --␣"↵1 1--␣x↵ 1/**/ 'a'↵'b' 'a'↵'b\' 'a'␣'b' n'a' b'1' x'41'`),
	pieces: oddPieces(`' ' '' \' \' \ \\ " " "" -- --␣x↵ ↵ /* */ ; , 'b' ( ) ,'␣,' ,"␣," ;SELECT␣1;`),
}

var postgresOddities = oddities{
	items: append(oddPieces(`E'a' E'a\'' e'\\' E'a\'↵'b' E'a'↵'b\'' E'a'↵'b\' E'a'--x↵'b\' E''↵'\','␣' U&'a\0027' U&'a'␣UESCAPE␣'!' $$'$$ $$"$$
		$a$$$a$ $a$'$a$ $1$ /*/**/*/1 /*␣/*␣'␣*/1 /*␣/*␣*/␣'␣*/1 /*␣/*␣*/␣*/1 1::text`), commonOddities.items...),
	pieces: append(oddPieces(`E E' e'\ U&' $$ $a$ $ /*/* */*/ ↵'b\' UESCAPE'!'`), commonOddities.pieces...),
	plants: []string{"pg_advisory_lock(7)", "1;SELECT pg_advisory_lock(7);SELECT 1"},
	modes:  []string{"SET standard_conforming_strings = on", "SET standard_conforming_strings = off"},
	clear:  "SELECT pg_advisory_unlock_all()",
	found:  "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
}

var mysqlOddities = oddities{
	items: append(oddPieces("/*!␣1*/ /*!␣'a'*/ /*!50000␣1*/ /*!50701␣1*/ /*!80000␣1*/ /*!99999␣'*/1 /*!80000␣'*/1 /*M!␣1*/ /*M!100100␣1*/"+
		" /*M!␣'*/1 /*!50701␣'*/1 /*M!999999␣'*/1 /*M!␣1,*/1 /*!80000␣1,*/1 1/*M!*//*!50701*/ /*M!'*/␣/*!80000'*/␣1 /*!80000'*/␣/*M!'*/␣1"+
		" #␣'↵1 #␣\"↵1 _utf8mb4'a' @@version --1 \\N"), commonOddities.items...),
	pieces: append(oddPieces("# #␣x↵ /*! /*!50701␣ /*!80000␣ /*M! /*M!100100␣ */ /*!99999␣ /*M!*/ `"), commonOddities.pieces...),
	plants: []string{
		"GET_LOCK(0x37,0)", "(@planted:=1)", "1;SELECT GET_LOCK(0x37,0);SELECT 1", "1;SET @planted=1;SELECT 1",
		// Of two comments that may be code, MariaDB executes the one and MySQL the other.
		"1/*!80000 -- */ /*M!,GET_LOCK(0x37,0)*/\n,1*/**/1", "1/*M! -- */ /*!80000,GET_LOCK(0x37,0)*/\n,1*/**/1",
	},
	modes: []string{
		"SET sql_mode = ''", "SET sql_mode = 'ANSI_QUOTES'", "SET sql_mode = 'NO_BACKSLASH_ESCAPES'",
		"SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'",
	},
	clear: "SET @planted = RELEASE_ALL_LOCKS() * 0",
	found: "SELECT COALESCE(@planted <> 0, 1) OR COALESCE(IS_USED_LOCK('7') = CONNECTION_ID(), 0)",
}

// oddPieces splits a list at white space; ␣ is a space and ↵ a newline in a piece.
func oddPieces(list string) []string {
	pieces := strings.Fields(list)
	for i, p := range pieces {
		pieces[i] = strings.NewReplacer("␣", " ", "↵", "\n").Replace(p)
	}
	return pieces
}

// TestATextThatIsCalledCleanSetsNothing plants what sets state into texts with odd quotes
// and comments. Those that are called clean are executed, in each mode of the server, and
// some of the others, to see that the test can fail.
func TestATextThatIsCalledCleanSetsNothing(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		odd, dsn, parameters, execute := postgresOddities, "postgres://h/d", []string{}, asItIs
		if account.Server.Engine != testbed.Postgres {
			odd, dsn, parameters, execute = mysqlOddities, "mysql:", []string{"multiStatements=true"}, byDriver
		}
		dialect, err := dialects.Find(dsn)
		require.NoError(t, err)
		conn := onlyConn(t, account.OpenBare(t, parameters...))
		r := randomtest.Seeded(t)
		executed, dirty, planted := 0, 0, 0
		texts := randomtest.Rounds(5_000, 200_000)
		for n := range texts {
			if n%50 == 0 {
				mustExec(t, conn, odd.modes[r.IntN(len(odd.modes))])
				mustExec(t, conn, odd.clear)
			}
			text := odd.text(r)
			clean := !dialect.Effect(text).Dirty()
			if !clean && n%8 > 0 {
				continue
			}
			err := execute(t.Context(), conn, text)
			var state int
			require.NoError(t, conn.QueryRowContext(t.Context(), odd.found).Scan(&state), text)
			switch {
			case clean && state > 0:
				t.Errorf("clean: %q", text)
			case clean && err == nil:
				executed++
			case !clean:
				dirty++
			}
			if state > 0 {
				planted++
				mustExec(t, conn, odd.clear)
			}
		}
		t.Logf("of %d texts %d are called clean and execute; of %d others %d set something", texts, executed, dirty, planted)
		require.Positive(t, planted)
		require.Positive(t, executed)
	})
}

func byDriver(ctx context.Context, conn *sql.Conn, text string) error {
	_, err := conn.ExecContext(ctx, text)
	return err
}

// asItIs sends a text as it is: pgx's simple protocol asks for the setting that is
// to be tried.
func asItIs(ctx context.Context, conn *sql.Conn, text string) (err error) {
	lost := conn.Raw(func(c any) error {
		_, err = c.(*stdlib.Conn).Conn().PgConn().Exec(ctx, text).ReadAll()
		return nil
	})
	return errors.Join(lost, err)
}

// text is a list with a plant in it, and a few pieces where they do not belong.
func (o oddities) text(r *rand.Rand) string {
	of := func(list []string) string { return list[r.IntN(len(list))] }
	items := []string{}
	for range r.IntN(5) {
		items = append(items, of(o.items))
	}
	items = slices.Insert(items, r.IntN(len(items)+1), of(o.plants))
	text := "SELECT " + strings.Join(items, ",")
	for range r.IntN(4) {
		at := r.IntN(len(text) + 1)
		text = text[:at] + of(o.pieces) + text[at:]
	}
	return text
}
