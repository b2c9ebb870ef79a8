//go:build cgo

package calls

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"monopod.dev/monopod/internal/executor/protocol"
)

// Each method of the protocol is served, and no other.
func TestRows(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "protocol", "messages.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	methods := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Method") {
			return true
		}
		lit, ok := spec.Values[0].(*ast.BasicLit)
		if !ok {
			t.Fatalf("%s is no literal", spec.Names[0].Name)
		}
		name, err := strconv.Unquote(lit.Value)
		if err != nil {
			t.Fatal(err)
		}
		methods[name] = true
		return true
	})
	for _, apart := range []string{protocol.MethodHello, protocol.MethodHandover} { // which need no agreed version
		if !methods[apart] || rows[apart].serve != nil {
			t.Errorf("%s has a row, or is no method", apart)
		}
		delete(methods, apart)
	}
	for name := range methods {
		if rows[name].serve == nil {
			t.Errorf("%s is not served", name)
		}
	}
	for name := range rows {
		if !methods[name] {
			t.Errorf("%s is served, and no method", name)
		}
	}
}
