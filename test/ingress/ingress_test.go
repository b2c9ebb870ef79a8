//go:build ingress

package ingress

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
	"monopod.dev/monopod/test/registry"
)

const (
	traefik = "registry.test/test/traefik:1"
	busybox = "registry.test/test/busybox:1"
)

// controller is Traefik as its documentation has it installed: an account with rights of its own, a Deployment, a Service for everybody, and the class that is
// used where an Ingress names none. It is ready when a route of its leads somewhere: /ping answers before it knows the ingresses.
var controller = template.Must(template.New("controller").Parse(`
apiVersion: v1
kind: Namespace
metadata: {name: traefik}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: traefik, namespace: traefik}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: traefik}
rules:
- {apiGroups: [""], resources: [services, secrets, nodes, configmaps], verbs: [get, list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
- {apiGroups: [networking.k8s.io], resources: [ingresses, ingressclasses], verbs: [get, list, watch]}
- {apiGroups: [networking.k8s.io], resources: [ingresses/status], verbs: [update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: traefik}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: traefik}
subjects: [{kind: ServiceAccount, name: traefik, namespace: traefik}]
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: traefik, annotations: {ingressclass.kubernetes.io/is-default-class: "true"}}
spec: {controller: traefik.io/ingress-controller}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: another}
spec: {controller: example.com/another}
---
apiVersion: v1
kind: Service
metadata: {name: traefik, namespace: traefik}
spec:
  type: LoadBalancer
  selector: {app: traefik}
  ports: [{name: web, port: {{.HTTP}}, targetPort: web}, {name: websecure, port: {{.HTTPS}}, targetPort: websecure}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: traefik, namespace: traefik}
spec:
  selector: {matchLabels: {app: traefik}}
  template:
    metadata: {labels: {app: traefik}}
    spec:
      serviceAccountName: traefik
      terminationGracePeriodSeconds: 20
      containers:
      - name: traefik
        image: ` + traefik + `
        args: [--global.checknewversion=false, --global.sendanonymoususage=false, --accesslog, --ping, --entrypoints.traefik.address=:8080,
          --entrypoints.web.address=:8000, --entrypoints.web.transport.lifecycle.requestacceptgracetimeout=5s, --entrypoints.websecure.address=:8443, --entrypoints.websecure.http.tls,
          --providers.kubernetesingress, --providers.kubernetesingress.ingressendpoint.publishedservice=traefik/traefik]
        ports: [{name: web, containerPort: 8000}, {name: websecure, containerPort: 8443}, {name: admin, containerPort: 8080}]
        securityContext: {runAsUser: 65532, readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        readinessProbe: {httpGet: {path: /, port: web, httpHeaders: [{name: Host, value: ready.example}]}, periodSeconds: 1}
        livenessProbe: {httpGet: {path: /ping, port: admin}, failureThreshold: 30}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: ready}
spec:
  ingressClassName: traefik
  rules: [{host: ready.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: back, port: {name: http}}}}]}}]
`))

// backend is a Deployment whose pods say its name at / and below /api, with its Service.
var backend = template.Must(template.New("backend").Parse(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{.}}}
spec:
  replicas: 2
  selector: {matchLabels: {app: {{.}}}}
  template:
    metadata: {labels: {app: {{.}}}}
    spec:
      containers:
      - name: httpd
        image: ` + busybox + `
        env: [{name: SAYS, value: {{.}}}]
        command: [sh, -c, "mkdir -p /www/api; echo $SAYS > /www/index.html; echo $SAYS api > /www/api/index.html; exec httpd -f -p 8080 -h /www"]
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /, port: http}, periodSeconds: 1}
        lifecycle: {preStop: {sleep: {seconds: 3}}}
---
apiVersion: v1
kind: Service
metadata: {name: {{.}}}
spec: {selector: {app: {{.}}}, ports: [{name: http, port: 80, targetPort: http}]}
`))

// A service whose address Traefik asks, not its pods.
const ingresses = `
apiVersion: v1
kind: Service
metadata: {name: back-address, annotations: {traefik.ingress.kubernetes.io/service.nativelb: "true"}}
spec: {selector: {app: back}, ports: [{port: 80, targetPort: http}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop}
spec:
  rules:
  - host: shop.example
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: front, port: {name: http}}}}
      - {path: /api, pathType: Prefix, backend: {service: {name: back, port: {number: 80}}}}
  - host: address.example
    http:
      paths: [{path: /, pathType: Prefix, backend: {service: {name: back-address, port: {number: 80}}}}]
  - host: "*.wild.example"
    http:
      paths: [{path: /index.html, pathType: Exact, backend: {service: {name: back, port: {name: http}}}}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: not-mine}
spec:
  ingressClassName: another
  rules: [{host: another.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: front, port: {name: http}}}}]}}]
`

func program(name string) (ociarchive.Image, error) {
	data, err := os.ReadFile(os.Getenv("MONOPOD_TRAEFIK"))
	if err != nil {
		return ociarchive.Image{}, err
	}
	return ociarchive.Image{Name: name, Config: ocispec.ImageConfig{Entrypoint: []string{"/traefik"}}, Layers: []ociarchive.Layer{{
		{Path: "tmp", Dir: true, Mode: 0o1777}, {Path: "traefik", Data: data, Mode: 0o755}}}}, nil
}

// freePort is one that nobody listens at now.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func render(t *testing.T, tmpl *template.Template, data any) string {
	t.Helper()
	var out bytes.Buffer
	if err := tmpl.Execute(&out, data); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// outside is a machine beside the node, where the load balancer's address is asked.
type outside struct {
	// own is its address, address the load balancer's.
	netns, own, address string
	http, https         int
	client              *http.Client
}

// get asks for a path of a host, and returns the status and what the answer says.
func (o *outside) get(scheme, host, path string) (string, error) {
	req, err := http.NewRequest(http.MethodGet, scheme+"://"+host+path, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := o.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	return fmt.Sprintf("%d %s", resp.StatusCode, strings.TrimSpace(string(body))), err
}

// reach is how it reaches the address: every name is taken for it, and the authority is trusted.
func (o *outside) reach(address string, pool *x509.CertPool) {
	o.address = address
	dial := func(ctx context.Context, network, to string) (conn net.Conn, err error) {
		port := o.http
		if strings.HasSuffix(to, ":443") {
			port = o.https
		}
		err = harness.InNetNS(o.netns, func() (err error) {
			conn, err = (&net.Dialer{Timeout: 60 * time.Second * harness.SlowFactor()}).DialContext(ctx, network, net.JoinHostPort(o.address, strconv.Itoa(port)))
			return err
		})
		return conn, err
	}
	o.client = &http.Client{Timeout: 60 * time.Second * harness.SlowFactor(), Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool}}}
}

func (o *outside) eventually(t *testing.T, scheme, host, path, want string) {
	t.Helper()
	harness.Eventually(t, host+path+" answers "+want, func() (bool, string) {
		got, err := o.get(scheme, host, path)
		return err == nil && got == want, fmt.Sprint(got, err)
	})
}

// cluster is a node with the controller and two backends.
type cluster struct {
	*harness.Node
	// args are those of each start.
	args []string
}

func start(t *testing.T, ca *registry.CA) (*cluster, *outside) {
	t.Helper()
	if os.Getenv("MONOPOD_TRAEFIK") == "" {
		t.Skip("MONOPOD_TRAEFIK names no traefik; make test-ingress builds it")
	}
	n := &cluster{Node: harness.NewNode(t, harness.Options{})}
	beside := harness.NewNeighbour(t, n.Node)
	at := beside.Node[harness.IPv4].String()
	n.args = []string{"--node-ip", at, "--agent-address", at}
	n.Start(n.args...)
	n.LoadImage(harness.Archive(t, busybox, images.Busybox))
	n.LoadImage(harness.Archive(t, traefik, program))
	o := &outside{netns: beside.NetNS, own: beside.Own[harness.IPv4].String(), http: freePort(t), https: freePort(t)}
	n.Apply(render(t, controller, struct{ HTTP, HTTPS int }{o.http, o.https}))
	n.Apply(render(t, backend, "front"))
	n.Apply(render(t, backend, "back"))
	for _, d := range []string{"traefik/traefik", "default/front", "default/back"} {
		namespace, name, _ := strings.Cut(d, "/")
		n.Kubectl("rollout", "status", "-n", namespace, "deployment/"+name, "--timeout=100s")
	}
	var address string
	harness.Eventually(t, "the controller's service has an address", func() (bool, string) {
		address = n.Kubectl("get", "service", "traefik", "-n", "traefik", "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}")
		return address != "", n.Kubectl("describe", "service", "traefik", "-n", "traefik")
	})
	if address != at {
		t.Errorf("the controller's service has the address %s, the node has %s", address, at)
	}
	o.reach(address, ca.Pool())
	return n, o
}

// keepAsking asks again and again; stop says whether all of it went well while something was done.
func (o *outside) keepAsking(t *testing.T, scheme, host, path string) (stop func(while string)) {
	t.Helper()
	asked, enough := make(chan error, 1), make(chan struct{})
	answers := 0
	go func() {
		for {
			select {
			case <-enough:
				asked <- nil
				return
			default:
			}
			if got, err := o.get(scheme, host, path); err != nil || !strings.HasPrefix(got, "200 ") {
				asked <- fmt.Errorf("after %d answers: %q, error %v", answers, got, err)
				return
			}
			answers++
		}
	}()
	return func(while string) {
		t.Helper()
		close(enough)
		if err := <-asked; err != nil {
			t.Errorf("while %s: %v", while, err)
		} else if answers == 0 {
			t.Errorf("nobody asked while %s", while)
		}
	}
}

// refusedNothing: the controller's log names the client, and nothing that the API refused.
func (c *cluster) refusedNothing(t *testing.T, client string) {
	t.Helper()
	log := c.Kubectl("logs", "-n", "traefik", "deployment/traefik")
	if !strings.Contains(log, client+" - - [") {
		t.Errorf("the controller has not seen the client %s:\n%.2000s", client, log)
	}
	for line := range strings.Lines(log) {
		if strings.Contains(line, "object has been modified") {
			continue // another one was faster; it tries again
		}
		for _, refusal := range []string{"forbidden", "could not find", "failed to list", "failed to watch", "ingress status"} {
			if strings.Contains(line, refusal) {
				t.Errorf("the controller says: %s", line)
			}
		}
	}
}

// TestIngress: hosts and paths lead to the services that they name, and changes of ingresses, services, pods and certificates are followed.
func TestIngress(t *testing.T) {
	ca := registry.NewCA(t)
	n, o := start(t, ca)
	n.Apply(ingresses)
	o.eventually(t, "http", "shop.example", "/", "200 front")
	o.eventually(t, "http", "shop.example", "/api/", "200 back api")
	o.eventually(t, "http", "address.example", "/", "200 back")
	o.eventually(t, "http", "some.wild.example", "/index.html", "200 back")
	o.eventually(t, "http", "some.wild.example", "/api/", "404 404 page not found")
	o.eventually(t, "http", "another.example", "/", "404 404 page not found")

	// The class is the default one, and the status has the address of the controller's service.
	if got := n.Kubectl("get", "ingress", "shop", "-o", "jsonpath={.spec.ingressClassName}"); got != "traefik" {
		t.Errorf("the class of an ingress that names none is %q", got)
	}
	harness.Eventually(t, "the ingress has the address", func() (bool, string) {
		got := n.Kubectl("get", "ingress", "shop", "--no-headers")
		fields := strings.Fields(got)
		return len(fields) > 3 && fields[1] == "traefik" && fields[3] == o.address, got
	})
	if got := n.Kubectl("get", "ingress", "not-mine", "-o", "jsonpath={.status.loadBalancer.ingress}"); got != "" {
		t.Errorf("an ingress of another class has the address %s", got)
	}

	// Other pods, none, and some again, under requests that all go well.
	stop := o.keepAsking(t, "http", "shop.example", "/")
	n.Kubectl("set", "env", "deployment/front", "SAYS=changed")
	n.Kubectl("rollout", "status", "deployment/front", "--timeout=100s")
	o.eventually(t, "http", "shop.example", "/", "200 changed")
	n.Kubectl("scale", "deployment/front", "--replicas=4")
	n.Kubectl("rollout", "status", "deployment/front", "--timeout=100s")
	stop("the pods were replaced")
	n.refusedNothing(t, o.own)
	stop = o.keepAsking(t, "http", "shop.example", "/")
	n.Kubectl("rollout", "restart", "-n", "traefik", "deployment/traefik")
	n.Kubectl("rollout", "status", "-n", "traefik", "deployment/traefik", "--timeout=100s")
	n.Kubectl("wait", "-n", "traefik", "--for=jsonpath={.status.terminatingReplicas}=0", "deployment/traefik", "--timeout=100s")
	stop("the controller was replaced")
	n.Kubectl("scale", "deployment/front", "--replicas=0")
	o.eventually(t, "http", "shop.example", "/", "503 no available server")
	n.Kubectl("scale", "deployment/front", "--replicas=1")
	o.eventually(t, "http", "shop.example", "/", "200 changed")

	// A path moves, a certificate comes, and a certificate is replaced.
	n.Kubectl("patch", "ingress", "shop", "--type=json", "-p", `[{"op":"replace","path":"/spec/rules/0/http/paths/0/backend/service/name","value":"back"}]`)
	o.eventually(t, "http", "shop.example", "/", "200 back")
	secret := func(names ...string) {
		cert, key := ca.Issue(t, names...)
		n.Apply(fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: shop}, type: kubernetes.io/tls, data: {tls.crt: %s, tls.key: %s}}",
			base64.StdEncoding.EncodeToString(cert), base64.StdEncoding.EncodeToString(key)))
	}
	secret("shop.example")
	n.Kubectl("patch", "ingress", "shop", "-p", `{"spec":{"tls":[{"hosts":["shop.example","more.example"],"secretName":"shop"}]}}`)
	o.eventually(t, "https", "shop.example", "/", "200 back")
	secret("shop.example", "more.example", "created.example")
	n.Kubectl("patch", "ingress", "shop", "--type=json", "-p", `[{"op":"add","path":"/spec/rules/-","value":{"host":"more.example","http":{"paths":[{"path":"/","pathType":"Prefix","backend":{"service":{"name":"front","port":{"number":80}}}}]}}}]`)
	o.eventually(t, "https", "more.example", "/", "200 changed")

	n.refusedNothing(t, o.own)

	// While the node's programs are dead requests are served, and what changes afterwards is followed by the same controller.
	stop = o.keepAsking(t, "http", "shop.example", "/")
	n.Kill()
	o.eventually(t, "http", "shop.example", "/", "200 back")
	n.Start(n.args...)
	stop("monopod was killed and started")
	n.Kubectl("delete", "ingress", "shop")
	o.eventually(t, "http", "shop.example", "/", "404 404 page not found")
	n.Kubectl("create", "ingress", "created", "--class=traefik", "--rule=created.example/*=front:http,tls=shop", "--rule=created.example/api*=back:80")
	n.Kubectl("create", "ingress", "fallback", "--class=traefik", "--default-backend=back:http")
	o.eventually(t, "https", "created.example", "/", "200 changed")
	o.eventually(t, "https", "created.example", "/api/", "200 back api")
	o.eventually(t, "http", "nobody.example", "/", "200 back")
	if got := n.Kubectl("get", "pods", "-n", "traefik", "-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}"); strings.Trim(got, "0 ") != "" {
		t.Errorf("the controller's containers were restarted %q times", got)
	}
	shown(t, n, o.address)
}

// shown looks at what kubectl prints of classes, and of the ingress created.
func shown(t *testing.T, n *cluster, address string) {
	t.Helper()
	fields := func(rows string) (all []string) {
		for row := range strings.Lines(rows) {
			all = append(all, strings.Join(strings.Fields(row), " "))
		}
		return all
	}
	classes := fields(n.Kubectl("get", "ingressclass", "--no-headers"))
	for i, want := range []string{"another example.com/another <none> ", "traefik (default) traefik.io/ingress-controller <none> "} {
		if len(classes) != 2 || !strings.HasPrefix(classes[i], want) {
			t.Errorf("the classes are %q, want one %q", classes, want)
		}
	}
	harness.Eventually(t, "the ingress has the address", func() (bool, string) {
		got := n.Kubectl("get", "ingress", "created", "--no-headers")
		return strings.HasPrefix(strings.Join(strings.Fields(got), " "), "created traefik created.example "+address+" 80, 443 "), got
	})
	described := n.Kubectl("describe", "ingress", "created")
	lines := fields(described)
	for _, want := range []string{"Address: " + address, "Ingress Class: traefik", "shop terminates created.example"} {
		if !slices.Contains(lines, want) {
			t.Errorf("kubectl describe ingress does not say %q:\n%s", want, described)
		}
	}
	for path, service := range map[string]string{"/ front:http": "front", "/api back:80": "back"} {
		// Pods that are about to end are still in the slices.
		ready := strings.Fields(n.Kubectl("get", "endpointslices", "-l", "kubernetes.io/service-name="+service, "-o", "jsonpath={.items[*].endpoints[?(@.conditions.ready==true)].addresses[0]}"))
		slices.Sort(ready)
		var got []string
		for _, line := range lines {
			if pods, ok := strings.CutPrefix(line, path+" ("); ok {
				got = strings.Split(strings.ReplaceAll(strings.TrimSuffix(pods, ")"), ":8080", ""), ",")
				slices.Sort(got)
			}
		}
		if !slices.Equal(got, ready) {
			t.Errorf("kubectl describe ingress says that %s has the pods %q; ready are %q:\n%s", path, got, ready, described)
		}
	}
	if got := n.Kubectl("describe", "ingressclass", "traefik"); !slices.Contains(fields(got), "Controller: traefik.io/ingress-controller") {
		t.Errorf("kubectl describe ingressclass:\n%s", got)
	}
}
