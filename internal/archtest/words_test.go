package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// unclear are words that leave it open whether something must be, may be or is, by the conventions of the API ("must", "must not", "may not"), inequalities that
// are not written as there ("greater than", "less than or equal to"), and literals in double quotes.
var unclear = regexp.MustCompile("\\b(should|cannot|can not|can only|not allowed|larger|bigger|smaller|more than|no more than)\\b|[<>]=|\"[a-z]")

// words are what a Kubernetes API server says, which people and tools know.
var words = []string{
	"User %q is not permitted to \"sign\" for signer %q",
	"can not be empty",
	"can not be set for pod eviction, try after removing the option",
	"can only be modified in tandem with spec.parallelism",
	"can only be set when AppArmor type is Localhost",
	"can only be set when seccomp type is Localhost",
	"can not contain backsteps ('..')",
	"can only use minDomains if whenUnsatisfiable=%s, not %s",
	"can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
	"cannot be 0 when maxSurge is 0",
	"cannot be 0",
	"cannot be decremented",
	"cannot be greater than status.readyReplicas",
	"cannot be greater than status.replicas",
	"cannot be set",
	"cannot be set for an Ephemeral Container",
	"cannot be set on create",
	"cannot be set until all schedulingGates have been cleared",
	"cannot end with '%s'",
	"cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
	"cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
	"cannot set both port name & port number",
	"cannot set both resource and service backends",
	"cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
	"cannot use both timeZone field and TZ or CRON_TZ in schedule",
	"datasetName and datasetUUID can not be specified simultaneously",
	"ephemeral containers not allowed in pod template",
	"existing toleration can not be modified except its tolerationSeconds",
	"field can not be empty.",
	"field can not be less than status.capacity",
	"fieldRef and resourceFieldRef can not be specified simultaneously",
	"if provided, maxExpirationSeconds must be <= %d",
	"if provided, maxExpirationSeconds must be >= %d",
	"leaf certificate lifetime must be <= spec.maxExpirationSeconds (%v)",
	"leaf certificate lifetime must be >= 1 hour",
	"leaf certificate should not contain empty DNSName",
	"leaf certificate should not contain invalid EmailAddress",
	"leaf certificate's DNSName should not contain '..'",
	"leaf certificate's DNSName should not start or end with '.'",
	"may not have more than one field specified at a time",
	"may not specify a duration larger than 2^32 seconds",
	"may not specify more than 1 handler type",
	"may not specify more than 1 volume type",
	"may not specify more than two policyTypes",
	"may specify no more than one IP for each IP family",
	"may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
	"minAvailable and maxUnavailable cannot be both set",
	"must be no more than 52 characters",
	"namespaced rules cannot apply to non-resource URLs",
	"operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
	"rules cannot apply to both regular resources and non-resource URLs",
	"should be a domain with at least two segments separated by dots",
	"should be at least 2",
	"targetWWNs and wwids can not be specified simultaneously",
	"the legacy signerName is not allowed via this API version",
}

// TestWords: what is wrong with an object is said in the words of the API's conventions, or in those of a Kubernetes API server.
func TestWords(t *testing.T) {
	used := map[string]bool{}
	for _, p := range list(t, "./internal/apiserver/...", "./internal/pods/...") {
		fset := token.NewFileSet()
		for _, file := range p.GoFiles {
			if strings.HasPrefix(file, "zz_generated") {
				continue
			}
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for message, at := range messagesIn(f) {
				if !unclear.MatchString(message) {
					continue
				}
				if used[message] = true; !slices.Contains(words, message) {
					t.Errorf("%s: %q: say what it must, must not or may not be; if a Kubernetes API server says so, word by word, name it in words", fset.Position(at), message)
				}
			}
		}
	}
	for _, message := range words {
		if !used[message] {
			t.Errorf("nobody says %q: it needs no exception", message)
		}
	}
}

// kinds are the functions that make errors of fields, whose last argument is the message.
var kinds = []string{"Invalid", "Forbidden", "Required", "NotSupported", "TooLong", "Duplicate", "TypeInvalid"}

// messagesIn are the messages about fields in a file, as far as they stand there.
func messagesIn(f *ast.File) map[string]token.Pos {
	consts := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Names) == len(spec.Values) {
			for i, name := range spec.Names {
				if text := strings.Join(literals(spec.Values[i], nil), ""); text != "" {
					consts[name.Name] = text
				}
			}
		}
		return true
	})
	found := map[string]token.Pos{}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 2 {
			return true
		}
		fun, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains(kinds, fun.Sel.Name) {
			return true
		}
		if x, ok := fun.X.(*ast.Ident); ok && x.Name == "field" {
			if text := strings.Join(literals(call.Args[len(call.Args)-1], consts), ""); text != "" {
				found[text] = call.Pos()
			}
		}
		return true
	})
	return found
}

// literals are the strings in an expression, in their order.
func literals(e ast.Expr, consts map[string]string) (all []string) {
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				all = append(all, text)
			}
		case *ast.Ident:
			if text := consts[n.Name]; text != "" {
				all = append(all, text)
			}
		case *ast.SelectorExpr:
			return false
		case *ast.FuncLit:
			return false
		}
		return true
	})
	return all
}

// TestNolint: a directive names only linters that run (.golangci.yml); one that names another holds nothing, and its reason belongs into a comment.
func TestNolint(t *testing.T) {
	root := filepath.Join("..", "..")
	raw, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(raw), "\n  enable:\n")
	list, _, _ = strings.Cut(list, "\n  settings:\n")
	runs := map[string]bool{}
	for line := range strings.Lines(list) {
		runs[strings.TrimPrefix(strings.TrimSpace(line), "- ")] = true
	}
	if !runs["errcheck"] {
		t.Fatalf("the linters that run are %v", runs)
	}
	found, err := exec.Command("git", "-C", root, "grep", "-nE", "//nolint:[a-z]", "--", "*.go", ":!internal/archtest").Output()
	if err != nil {
		t.Fatalf("git grep: %v", err)
	}
	for line := range strings.Lines(string(found)) {
		_, names, _ := strings.Cut(line, "//nolint:")
		names, _, _ = strings.Cut(strings.TrimSpace(names), " ")
		for name := range strings.SplitSeq(names, ",") {
			if !runs[name] {
				t.Errorf("%s: %s does not run", strings.TrimSpace(line), name)
			}
		}
	}
}
