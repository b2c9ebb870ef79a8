package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// matches are the functions that decide by a string. What only shapes one for people (TrimSuffix, ReplaceAll) decides nothing.
var matches = []string{"strings.Contains", "strings.ContainsAny", "strings.HasPrefix", "strings.HasSuffix", "strings.EqualFold", "strings.Index", "strings.Cut",
	"bytes.Contains", "bytes.HasPrefix", "bytes.HasSuffix", "regexp.MatchString"}

// stringsAreMatched are the files that look into an error's string, with the reasons.
var stringsAreMatched = map[string]string{
	"internal/agent/act/image.go":        "the kubelet's convention with CRI: a known error is the beginning of a message",
	"internal/image/registry/session.go": "whether it has more than one line decides how it is printed",
	"internal/network/cni/conf.go":       "whether what was told is told again",
}

// TestErrorStrings: an error string is never matched. It changes with the next version of whoever makes it; classes (errdefs) and types
// (errors.As) do not.
func TestErrorStrings(t *testing.T) {
	var found []string
	for _, p := range list(t, "./...") {
		for _, file := range append(p.GoFiles, p.CgoFiles...) {
			path := filepath.Join(p.Dir, file)
			name := filepath.Join(strings.TrimPrefix(p.ImportPath, module), file)
			for _, at := range matchedIn(t, path) {
				found = append(found, name)
				if stringsAreMatched[name] == "" {
					t.Errorf("%s: an error string is matched: ask for its class (errdefs.Is...), or its type (errors.As)", at)
				}
			}
		}
	}
	for name := range stringsAreMatched {
		if !slices.Contains(found, name) {
			t.Errorf("%s matches no error string: it needs no exception", name)
		}
	}
}

// matchedIn finds where a file decides by what Error() says.
func matchedIn(t *testing.T, path string) (at []token.Position) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if fun, ok := n.Fun.(*ast.SelectorExpr); ok && slices.ContainsFunc(n.Args, isErrorString) {
				if x, ok := fun.X.(*ast.Ident); ok && slices.Contains(matches, x.Name+"."+fun.Sel.Name) {
					at = append(at, fset.Position(n.Pos()))
				}
			}
		case *ast.BinaryExpr:
			if (n.Op == token.EQL || n.Op == token.NEQ) && (isErrorString(n.X) || isErrorString(n.Y)) {
				at = append(at, fset.Position(n.Pos()))
			}
		case *ast.SwitchStmt:
			if n.Tag != nil && isErrorString(n.Tag) {
				at = append(at, fset.Position(n.Pos()))
			}
		}
		return true
	})
	return at
}

// isErrorString says that an expression is X.Error().
func isErrorString(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) > 0 {
		return false
	}
	fun, ok := call.Fun.(*ast.SelectorExpr)
	return ok && fun.Sel.Name == "Error"
}
