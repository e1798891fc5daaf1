//go:build odbc && cgo

package integration

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

func TestOverODBCAStatementFollowsTheTimeZoneOfItsSession(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, d database) {
		d.setUpMoments(t)
		s := serverStage(t, d.account)
		p := s.openURL(t, "odbc:"+odbcString(d.account, "pool_max_conns=1"))
		text := "SELECT CAST(extract(epoch FROM '2026-01-01 00:00'::timestamptz) AS bigint) WHERE CAST(? AS int) = 1"
		if d.kind != "postgres" {
			text = d.yearBegins()
		}
		for range 2 {
			for _, zone := range zones {
				ctx, end := pooldriver.WithTask(t.Context())
				p.mustExec(ctx, t, d.setZone(zone.name, zone.offset))
				for range 3 {
					require.Equal(t, zone.begins, beginning(ctx, t, p, text), zone.name)
				}
				p.mustExec(ctx, t, d.setZone("UTC", "+00:00"))
				require.EqualValues(t, utc, beginning(ctx, t, p, text))
				p.mustExec(ctx, t, d.setZone(zone.name, zone.offset))
				require.Equal(t, zone.begins, beginning(ctx, t, p, text), zone.name)
				end()
				for range 2 {
					require.EqualValues(t, utc, beginning(t.Context(), t, p, text), "after %s", zone.name)
				}
			}
		}
	})
}
