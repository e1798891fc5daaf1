package pooldriver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOneCallOfTheSourceServesManyDials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		c := newCredentials(func(context.Context) (Credential, error) {
			time.Sleep(time.Second) // a slow vault; the bubble's clock
			return Credential{User: "u", Password: fmt.Sprint(calls.Add(1)), Expires: time.Now().Add(time.Hour)}, nil
		})
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				cred, serial, changed, err := c.get(t.Context(), 0)
				require.NoError(t, err)
				require.Equal(t, "1", cred.Password)
				require.EqualValues(t, 1, serial)
				require.False(t, changed)
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, calls.Load())

		time.Sleep(59*time.Minute + time.Second)
		cred, _, changed, err := c.get(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, "2", cred.Password, "asked again before it expires")
		require.True(t, changed)
	})
}

func TestARefusedCredentialIsAskedForOnceMore(t *testing.T) {
	n := 0
	c := newCredentials(func(context.Context) (Credential, error) {
		n++
		return Credential{User: "u", Password: fmt.Sprint(n)}, nil
	})
	_, first, _, err := c.get(t.Context(), 0)
	require.NoError(t, err)
	cred, second, changed, err := c.get(t.Context(), first)
	require.NoError(t, err)
	require.Equal(t, "2", cred.Password)
	require.True(t, changed)
	// Another dial that was refused the first one finds the second there.
	cred, _, _, err = c.get(t.Context(), first)
	require.NoError(t, err)
	require.Equal(t, "2", cred.Password)
	require.EqualValues(t, 2, second)
	require.Equal(t, 2, n)
}

func TestAFailingSourceFailsTheDialUnlessTheLastCredentialIsStillGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := false
		down := errors.New("vault is sealed")
		c := newCredentials(func(context.Context) (Credential, error) {
			if fails {
				return Credential{}, down
			}
			return Credential{User: "u", Password: "p", Expires: time.Now().Add(10 * time.Minute)}, nil
		})
		_, serial, _, err := c.get(t.Context(), 0)
		require.NoError(t, err)
		fails = true
		time.Sleep(9*time.Minute + 30*time.Second)
		_, _, _, err = c.get(t.Context(), 0)
		require.NoError(t, err, "renewal is due but the old one is good")
		_, _, _, err = c.get(t.Context(), serial)
		require.ErrorIs(t, err, down, "the server has refused it")
		time.Sleep(time.Minute)
		_, _, _, err = c.get(t.Context(), 0)
		require.ErrorIs(t, err, down)
	})
}

func TestASourceThatGivesAnExpiredCredentialIsAnError(t *testing.T) {
	c := newCredentials(func(context.Context) (Credential, error) {
		return Credential{Password: "p", Expires: time.Now().Add(-time.Minute)}, nil
	})
	_, _, _, err := c.get(t.Context(), 0)
	require.ErrorContains(t, err, "expired 1m0s ago")
}

func TestWaitingForTheSourceEndsWithTheContext(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	c := newCredentials(func(context.Context) (Credential, error) {
		close(entered)
		<-leave
		return Credential{}, nil
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _, _, _ = c.get(context.Background(), 0)
	}()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, _, err := c.get(ctx, 0)
	require.ErrorIs(t, err, context.Canceled)
	close(leave)
	<-done
}

func TestRenewalIsEarlyButNotAtOnce(t *testing.T) {
	now := time.Now()
	require.Zero(t, renewal(now, time.Time{}))
	require.Equal(t, now.Add(59*time.Minute), renewal(now, now.Add(time.Hour)))
	require.Equal(t, now.Add(8*time.Second), renewal(now, now.Add(10*time.Second)))
}

func TestCredentialNeverPrintsItsPassword(t *testing.T) {
	c := Credential{User: "app", Password: "s3cr3t", Expires: time.Now()}
	j, err := json.Marshal(map[string]any{"c": c, "p": &c})
	require.NoError(t, err)
	for _, s := range []string{c.String(), fmt.Sprint(c), fmt.Sprintf("%+v", &c), fmt.Sprintf("%#v", c), fmt.Sprintf("%s %q %x %d", c, c, c, c), string(j), c.LogValue().String()} {
		require.NotContains(t, s, "s3cr3t")
		require.NotContains(t, s, fmt.Sprintf("%x", "s3cr3t"))
		require.Contains(t, s, "app")
	}
}
