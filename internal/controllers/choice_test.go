package controllers

import (
	"strings"
	"testing"
)

func TestChoice(t *testing.T) {
	for choice, want := range map[string]string{
		"*":                            "binder namespace garbage-collector",
		"":                             "",
		"binder":                       "binder",
		"*,-namespace":                 "binder garbage-collector",
		"-namespace,*":                 "binder garbage-collector",
		"-namespace":                   "",
		"binder,-binder":               "binder",
		"*,-binder,binder":             "namespace garbage-collector",
		"namespace,garbage-collector":  "namespace garbage-collector",
		"*,-garbage-collector,-binder": "namespace",
	} {
		var got []string
		for _, name := range []string{Binder, Namespace, GarbageCollector} {
			if enabled(name, strings.Split(choice, ",")) {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q runs %v, want %q", choice, got, want)
		}
	}
}
