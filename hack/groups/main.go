// Command groups prints what hack/generate.sh makes OpenAPI definitions of: a line for each API group that is served, with its name and the Go packages of its
// types. The list itself is the scheme's (internal/apiserver/scheme/groups.go).
package main

import (
	"fmt"
	"os"
	"strings"

	"monopod.dev/monopod/internal/apiserver/scheme"
)

func main() {
	packages, err := scheme.PackagesOf()
	if err != nil {
		fmt.Fprintln(os.Stderr, "groups:", err)
		os.Exit(1)
	}
	for _, p := range packages {
		fmt.Println(p.Name, strings.Join(p.Go, " "))
	}
}
