package inspect_test

import (
	"compress/gzip"
	"database/sql"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/inspect"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

//go:noinline
func usedBefore(db *sql.DB) { _, _ = db.Exec("update t set a = 1") }

//go:noinline
func usedMeanwhile(db *sql.DB) { _, _ = db.Exec("update t set a = 1") }

func TestAProfileOfSomeSecondsHasWhatHappensInThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := pooldriver.Wrap(fakedb.NullConnector{}, func(c *pooldriver.Config) { c.SampleStacks = 1 })
		db := sql.OpenDB(c)
		defer db.Close()
		usedBefore(db)
		go func() {
			time.Sleep(time.Second)
			usedMeanwhile(db)
		}()
		began := time.Now()
		places := func(target string) string {
			w := answer(inspect.Profile(c), request(http.MethodGet, target))
			require.Equal(t, http.StatusOK, w.Code)
			r, err := gzip.NewReader(w.Body)
			require.NoError(t, err)
			text, err := io.ReadAll(r)
			require.NoError(t, err)
			return string(text)
		}
		part := places("/p?seconds=2")
		require.Equal(t, 2*time.Second, time.Since(began))
		require.Contains(t, part, "usedMeanwhile")
		require.NotContains(t, part, "usedBefore")
		all := places("/p")
		require.Contains(t, all, "usedMeanwhile")
		require.Contains(t, all, "usedBefore")
		for _, wrong := range []string{"x", "0", "601"} {
			w := answer(inspect.Profile(c), request(http.MethodGet, "/p?seconds="+wrong))
			require.Equal(t, http.StatusBadRequest, w.Code)
			require.True(t, strings.Contains(w.Body.String(), "from 1 to 600"))
		}
	})
}
