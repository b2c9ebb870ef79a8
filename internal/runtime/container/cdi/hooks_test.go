package cdi

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

// A vendor's file has one program for many hooks, and all of them for each device: it is told once, with the devices that have it.
func TestHooksOfAnError(t *testing.T) {
	hook := func(kind, path, arg string) string {
		return `{"hookName": "` + kind + `", "path": "` + path + `", "args": ["hook", "` + arg + `"]}`
	}
	all := strings.Join([]string{hook("createContainer", "/usr/bin/v-hook", "create-symlinks"), hook("createContainer", "/usr/bin/v-hook", "update-ldcache"), hook("poststop", "/usr/bin/v-hook", "done")}, ", ")
	m, dir := injector(t, map[string]string{"a/v.json": `{"cdiVersion": "0.6.0", "kind": "v.com/w", "containerEdits": {"hooks": [` + all + `]}, "devices": [
		{"name": "0", "containerEdits": {"hooks": [` + hook("createContainer", "/usr/bin/v-hook", "chmod") + `]}}, {"name": "1", "containerEdits": {"hooks": [` + hook("prestart", "/usr/bin/one", "x") + `]}}]}`})
	file := filepath.Join(dir, "a/v.json")
	got := m.WithHooks(asked("v.com/w=0", "v.com/w=1"), errors.New("it failed")).Error()
	want := "it failed; CDI devices have given it these hooks: createContainer /usr/bin/v-hook (" + file + ", for v.com/w=0, v.com/w=1), poststop /usr/bin/v-hook (" + file +
		", for v.com/w=0, v.com/w=1), prestart /usr/bin/one (" + file + ", for v.com/w=1)"
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
