package main

import (
	"context"
	"errors"
	"net"
	"testing"

	"cloud.google.com/go/cloudsqlconn"
	"github.com/stretchr/testify/require"
)

var _ instanceDialer = (*cloudsqlconn.Dialer)(nil)

// refusing is a dialer that notes what it was asked for.
type refusing struct{ asked []string }

var errNoCloud = errors.New("there is no cloud here")

func (r *refusing) Dial(_ context.Context, instance string, _ ...cloudsqlconn.DialOption) (net.Conn, error) {
	r.asked = append(r.asked, instance)
	return nil, errNoCloud
}

func TestTheDialerIsAskedForTheInstance(t *testing.T) {
	r := &refusing{}
	db := open(r, "project:region:instance", "app@project.iam", "shop")
	defer db.Close()
	err := db.PingContext(t.Context())
	require.ErrorIs(t, err, errNoCloud)
	require.ErrorContains(t, err, "app@project.iam@cloudsql:5432/shop")
	require.Equal(t, []string{"project:region:instance"}, r.asked)
}
