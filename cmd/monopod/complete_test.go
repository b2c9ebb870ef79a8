package main

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/test/clitest"
)

// completed are what a shell offers for the last of the words, and whether it offers files beside them.
func completed(t *testing.T, words ...string) (all []string, files bool) {
	t.Helper()
	var out bytes.Buffer
	root := newRootCommand()
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append([]string{cobra.ShellCompNoDescRequestCmd}, words...))
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%q: %v", words, err)
	}
	lines := strings.Split(out.String(), "\n")
	end := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, ":") })
	if end < 0 {
		t.Fatalf("%q: no directive in %q", words, out.String())
	}
	return lines[:end], lines[end] == ":0"
}

func TestCompletion(t *testing.T) {
	rig := clitest.NewAdminRig(t, protocol.Status{})
	socket, dir := rig.Path("admin.sock"), rig.Path("cdi")
	names := []string{"example.com/widget=w0", "example.com/widget=w1", "example.com/widget=w2",
		"vendor.example/gpu=GPU-5c6e2c1a-1f6b-44a0-8f1d-0a7f3e21b9c4", "vendor.example/gpu=all"}
	for _, c := range []struct {
		words []string
		want  []string
		files bool
	}{
		{words: []string{"device", "ls", "-o", ""}, want: []string{"table", "wide", "json", "yaml"}},
		{words: []string{"image", "ls", "-o", ""}, want: []string{"table", "json"}},
		{words: []string{"image", "inspect", "--output", ""}, want: []string{"json", "table"}},
		{words: []string{"device", "ls", "--admin-socket", socket, ""}, want: []string{"example.com/widget", "vendor.example/gpu"}},
		{words: []string{"device", "ls", "--admin-socket", socket, "example.com/widget", ""}},
		{words: []string{"cdi", "inspect", "--spec-dir", dir, ""}, want: names},
		{words: []string{"cdi", "inspect", "--spec-dir", dir, names[0], ""}, want: names[1:]},
		{words: []string{"device", "rm", "--spec-dir", dir, ""}}, // none of these is one that was added by hand
		{words: []string{"image", "rm", "--cri-socket", filepath.Join(t.TempDir(), "none.sock"), ""}},
		{words: []string{"trace", ""}},
		{words: []string{"status", ""}},
		{words: []string{"snapshot", "save", ""}, files: true},
		{words: []string{"volume", "restore", "--admin-socket", socket, ""}},
		{words: []string{"volume", "export", "-o", ""}, files: true},
		{words: []string{"volume", "import", ""}, files: true},
		{words: []string{"image", "load", ""}, files: true},
		{words: []string{"image", "save", "-o", ""}, files: true},
		{words: []string{"up", "--config", ""}, files: true},
		{words: []string{"up", "--node-name", ""}},
	} {
		if got, files := completed(t, c.words...); !slices.Equal(got, c.want) || files != c.files {
			t.Errorf("%q: %q, files: %t; want %q, %t", c.words, got, files, c.want, c.files)
		}
	}
}
