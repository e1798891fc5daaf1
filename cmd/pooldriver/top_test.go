package main

import (
	"bytes"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/inspect"
)

func TestTopReadsTheInspector(t *testing.T) {
	c := pooldriver.New("sqlite::memory:")
	db := sql.OpenDB(c)
	defer func() { _ = db.Close() }()
	require.NoError(t, db.Ping())
	server := httptest.NewServer(inspect.Handler(c))
	defer server.Close()
	var out bytes.Buffer
	require.NoError(t, (&top{URL: server.URL + "/debug/pool?x=1", Once: true}).Run(&out))
	require.Contains(t, out.String(), "The pool is not the problem: 0 of 10 connections are in use, and nobody waits.")
}

func TestTopSaysWhyItShowsNothing(t *testing.T) {
	refusing := httptest.NewServer(http.NotFoundHandler())
	defer refusing.Close()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	defer other.Close()
	for url, want := range map[string]string{
		"localhost:6060":                "is no URL of a page",
		"ftp://localhost/":              "is no URL of a page",
		refusing.URL:                    "the program answers 404",
		other.URL:                       "not that of inspect.Handler",
		"http://127.0.0.1:1/debug/pool": "asking the program",
	} {
		require.ErrorContains(t, (&top{URL: url, Once: true}).Run(new(bytes.Buffer)), want)
	}
}
