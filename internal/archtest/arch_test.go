package archtest

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "monopod.dev/monopod/"

// A layer is a part of the tree, with the parts of this module that its non-test code may import beside its own. A package
// belongs to the layer with the longest matching name.
type layer struct {
	name string
	may  []string
	why  string
}

var base = []string{"internal/failpoint", "internal/atomicfile", "internal/ballast", "internal/beat", "internal/bootfile"}

var layers = []layer{
	{"cmd/monopod", []string{"api", "internal/config", "internal/node", "internal/host/probe", "internal/runtime/imageservice", "internal/devices/report",
		"internal/admin/client", "internal/admin/protocol", "internal/cdispec", "internal/devices/contract",
		"internal/devices/hostdevice", "internal/devices/hostnode", "internal/devices/hostspecs", "internal/atomicfile"},
		"the command line knows the composition root, the clients of a running node and files that people write, never a role"},
	{"cmd/monopod-executor", []string{"internal/executor", "internal/host"}, "the executor outlives monopod and must stay small"},
	{"cmd/kubectl", nil, "kubectl is the upstream command, unchanged"},
	{"api", nil, "configuration types hold no logic"},
	{"internal/config", []string{"api", "internal/iprange"}, "reading a configuration needs nothing of the node"},
	{"internal/node", []string{"api", "internal/config", "internal/admin", "internal/apiserver", "internal/controllers", "internal/manifests", "internal/dns", "internal/netpolicy", "internal/agent", "internal/proxy", "internal/runtime", "internal/devices",
		"internal/image", "internal/network", "internal/executor/client", "internal/executor/launch", "internal/executor/protocol", "internal/state", "internal/host",
		"internal/timeline"},
		"the composition root is the only package that knows every role"},
	{"internal/manifests", nil, "what lies in a directory is applied as anybody would: it knows the Kubernetes API, by client-go, and nothing else"},
	{"internal/admin", []string{"internal/devices", "internal/host/unixsocket"}, "what a running node tells: values of the devices, and what the composition root says of the rest"},
	{"internal/admin/client", []string{"internal/admin/protocol", "internal/devices/report"}, "a client knows what is spoken, not who speaks it"},
	{"internal/admin/protocol", nil, "what is spoken over the administration socket, for both sides"},
	{"internal/honours", nil, "which fields of an API type are honoured is said in one way, by every role"},
	{"internal/pods", []string{"internal/honours"}, "what a pod says is a pure function, of which the roles know nothing but this"},
	{"internal/probation", nil, "both HTTPS servers treat strangers alike, and neither role imports the other"},
	{"internal/timeline", nil, "both roles tell how a pod's start went, and neither knows the other"},
	{"internal/apiserver", append([]string{"internal/pods", "internal/honours", "internal/probation", "internal/timeline"}, base...), "a role reaches another one only through a public protocol"},
	{"internal/iprange", nil, "ranges of addresses are one thing, in the configuration and to whoever uses them"},
	{"internal/controllers", []string{"internal/pods", "internal/failpoint", "internal/iprange"},
		"upstream's controllers can stand in its place, and ours beside anybody's API server: it knows the Kubernetes API, by client-go, and nothing else"},
	{"internal/dns", base, "it knows the Kubernetes API, by client-go, and name servers; nothing else of the node"},
	{"internal/dns/answer", nil, "what is said to a question is a pure function of it and of a view of the cluster"},
	{"internal/dns/message", nil, "messages are read and written by pure functions"},
	{"internal/netpolicy", []string{"internal/host/ruleset", "internal/iprange"}, "it knows the Kubernetes API, by client-go, and the kernel; whose addresses there are the composition root tells it"},
	{"internal/netpolicy/compile", []string{"internal/iprange"}, "what policies mean is a pure function"},
	{"internal/agent", append([]string{"internal/pods", "internal/probation", "internal/timeline", "internal/devices", "internal/host"}, base...),
		"the agent reaches containers only through CRI, and the API only through client-go, even in one process"},
	{"internal/agent/plan", []string{"internal/pods"}, "the plan is a pure function"},
	{"internal/agent/admit", []string{"internal/pods"}, "whether the node takes a pod is a pure function, and a ledger of what it has taken"},
	{"internal/agent/podcgroup", []string{"internal/pods", "internal/agent/podspec", "internal/agent/admit", "internal/host/cgroup", "internal/host/systemd"},
		"the cgroups of pods are made in one place, whatever the runtime is"},
	{"internal/agent/imagegc", nil, "which images go is a pure function"},
	{"internal/agent/probes/judge", nil, "when a probe is due, and what its answers mean, is a pure function"},
	{"internal/agent/userns", nil, "which IDs of the host a pod gets is a pure function"},
	{"internal/agent/relist", nil, "when a runtime is listed, and whether its events are believed, is a pure function"},
	{"internal/agent/shutdown/turns", nil, "whose turn it is to end is a pure function"},
	{"internal/agent/shutdown/logind", nil, "it knows systemd-logind, and of the node only that it is to get ready"},
	{"internal/cdispec", nil, "those who count devices and those who inject them read the same specs"},
	{"internal/devices", append([]string{"internal/cdispec", "internal/state", "internal/host"}, base...), "devices are usable without the agent"},
	{"internal/devices/alloc", []string{"internal/devices/inventory"}, "the choice of devices is a pure function"},
	{"internal/devices/topology", []string{"internal/devices/inventory"}, "which NUMA nodes devices come from is a pure function"},
	{"internal/devices/contract", []string{"internal/cdispec", "internal/devices/plugin", "internal/devices/inventory", "internal/devices/source", "internal/host/standin"},
		"what a device plugin is tried with is the node's own code, without a node"},
	{"internal/devices/contract/judge", nil, "what is right and wrong about a plugin is a pure function of what was observed"},
	{"internal/devices/inventory", nil, "an inventory is what a pure function chooses from"},
	{"internal/devices/hostdevice", []string{"internal/devices/inventory"}, "what spec comes of a host's device is a pure function"},
	{"internal/proxy", append([]string{"internal/host", "internal/iprange"}, base...), "the proxy knows services through the API and packets through the kernel; upstream's can stand in its place"},
	{"internal/proxy/plan", []string{"internal/iprange"}, "what is done with packets for a service is a pure function"},
	{"internal/runtime", append([]string{"internal/ocispec", "internal/cdispec", "internal/image", "internal/network", "internal/executor/client", "internal/executor/launch",
		"internal/executor/protocol", "internal/state", "internal/host"}, base...),
		"the runtime is usable under anybody's kubelet"},
	{"internal/ocispec", nil, "a specification is a pure function of what CRI, the image and CDI say"},
	{"internal/image", append([]string{"internal/state", "internal/host"}, base...), "below the runtime"},
	{"internal/network", append([]string{"internal/state", "internal/host"}, base...), "below the runtime"},
	{"internal/executor", append([]string{"internal/host"}, base...), "the executor outlives monopod and must stay small"},
	{"internal/state", base, "durable tables know nothing of what they hold"},
	{"internal/host", base, "system calls with a name, below everything"},
	{"internal/atomicfile", nil, "the lowest layer"},
	{"internal/ballast", nil, "the lowest layer"},
	{"internal/beat", nil, "the lowest layer"},
	{"internal/bootfile", []string{"internal/ballast"}, "the lowest layer"},
	{"internal/failpoint", nil, "the lowest layer"},
	{"internal/archtest", nil, "a test only"},
	{"devicetest", []string{"internal/devices/plugin", "internal/devices/source"}, "authors of device plugins get the node's own code, and nothing else of the node"},
	{"examples", []string{"internal/image/ociarchive"}, "the example is a user's program"},
	{"hack", nil, "tools of the build"},
	{"test", []string{"api", "internal", "cmd", "examples"}, "tests may use anything"},
}

// pure packages decide and do nothing else.
var pure = []string{"internal/honours", "internal/pods", "internal/agent/plan", "internal/agent/admit", "internal/agent/imagegc", "internal/agent/relist", "internal/agent/userns", "internal/agent/shutdown/turns", "internal/agent/probes/judge",
	"internal/devices/alloc", "internal/devices/topology", "internal/devices/inventory", "internal/devices/contract/judge",
	"internal/devices/hostdevice", "internal/dns/answer", "internal/dns/message", "internal/netpolicy/compile", "internal/iprange", "internal/ocispec", "internal/proxy/plan"}

// impure are the packages that a pure one must not import, and impureCalls the functions of allowed packages that read the
// world.
var (
	impure      = []string{"os", "os/exec", "net", "net/http", "syscall", "golang.org/x/sys/unix", "context", "log", "log/slog", "math/rand", "math/rand/v2"}
	impureCalls = []string{"time.Now", "time.Since", "time.Until", "time.After", "time.AfterFunc", "time.NewTimer", "time.NewTicker", "time.Sleep", "time.Tick"}
)

type goPackage struct {
	ImportPath string
	Dir        string
	Imports    []string
	GoFiles    []string
	CgoFiles   []string
}

func list(t *testing.T, args ...string) []goPackage {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-e", "-json=ImportPath,Dir,Imports,GoFiles,CgoFiles"}, args...)...)
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p goPackage
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

func within(pkg, part string) bool { return pkg == part || strings.HasPrefix(pkg, part+"/") }

func layerOf(pkg string) *layer {
	var best *layer
	for i := range layers {
		if within(pkg, layers[i].name) && (best == nil || len(layers[i].name) > len(best.name)) {
			best = &layers[i]
		}
	}
	return best
}

func TestImports(t *testing.T) {
	for _, p := range list(t, "./...") {
		pkg := strings.TrimPrefix(p.ImportPath, module)
		l := layerOf(pkg)
		if l == nil {
			t.Errorf("%s belongs to no layer: add it to docs/ARCHITECTURE.md and to the table of this test", pkg)
			continue
		}
		for _, imp := range p.Imports {
			target, ours := strings.CutPrefix(imp, module)
			if !ours {
				continue
			}
			ok := layerOf(target) == l && !slices.Contains(pure, l.name) || within(target, l.name)
			for _, part := range l.may {
				ok = ok || within(target, part)
			}
			if !ok {
				t.Errorf("%s imports %s: %s", pkg, target, l.why)
			}
		}
	}
}

func TestPurePackages(t *testing.T) {
	for _, name := range pure {
		for _, p := range list(t, "./"+name+"/...") {
			for _, imp := range p.Imports {
				if slices.Contains(impure, imp) {
					t.Errorf("%s imports %s: it decides, and does nothing else", name, imp)
				}
			}
			for _, file := range p.GoFiles {
				checkPureFile(t, filepath.Join(p.Dir, file))
			}
		}
	}
}

func checkPureFile(t *testing.T, path string) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			t.Errorf("%s: a pure package starts no goroutine", fset.Position(n.Pos()))
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && slices.Contains(impureCalls, x.Name+"."+n.Sel.Name) {
				t.Errorf("%s: a pure package is told the time, it does not look", fset.Position(n.Pos()))
			}
		}
		return true
	})
}

// TestNoKubernetesModule: k8s.io/kubernetes is not a library, and brings the code that this project is there to write.
func TestNoKubernetesModule(t *testing.T) {
	for _, p := range list(t, "-deps", "./...") {
		if within(p.ImportPath, "k8s.io/kubernetes") {
			t.Errorf("the module graph reaches %s", p.ImportPath)
		}
	}
}
