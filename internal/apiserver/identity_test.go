package apiserver_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"monopod.dev/monopod/internal/apiserver"
)

const issuer = "https://kubernetes.default.svc.cluster.local"

// eventually asks until ok says so.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after a minute still not: %s", what)
		}
	}
}

// TestNamespacesHaveTheirOwn: the service account default and the ConfigMap kube-root-ca.crt come with a namespace, and come back.
func TestNamespacesHaveTheirOwn(t *testing.T) {
	i := start(t, newConfig(t))
	defer i.end(t)
	c, ctx := i.admin(t), t.Context()
	if _, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ca := string(i.AdminConfig().CAData)
	for _, ns := range []string{"new", "default", "kube-system"} {
		eventually(t, "namespace "+ns+" has its own", func() bool {
			_, err := c.CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{})
			cm, cerr := c.CoreV1().ConfigMaps(ns).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
			return err == nil && cerr == nil && cm.Data["ca.crt"] == ca
		})
	}
	old, err := c.CoreV1().ServiceAccounts("new").Get(ctx, "default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CoreV1().ServiceAccounts("new").Delete(ctx, "default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.CoreV1().ConfigMaps("new").Delete(ctx, "kube-root-ca.crt", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	yes := true
	for name, change := range map[string]func(cm *corev1.ConfigMap){
		"changed":  func(cm *corev1.ConfigMap) { cm.Data["ca.crt"] = "mine" },
		"frozen":   func(cm *corev1.ConfigMap) { cm.Data, cm.Immutable = nil, &yes },
		"enlarged": func(cm *corev1.ConfigMap) { cm.BinaryData = map[string][]byte{"x": nil} },
	} {
		var cm *corev1.ConfigMap
		whole := func() bool {
			var err error
			cm, err = c.CoreV1().ConfigMaps("new").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
			return err == nil && len(cm.Data) == 1 && cm.Data["ca.crt"] == ca && len(cm.BinaryData) == 0
		}
		eventually(t, "the ConfigMap is there", whole)
		change(cm)
		if _, err := c.CoreV1().ConfigMaps("new").Update(ctx, cm, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the ConfigMap that was "+name+" is put back", whole)
	}
	eventually(t, "another service account", func() bool {
		sa, err := c.CoreV1().ServiceAccounts("new").Get(ctx, "default", metav1.GetOptions{})
		return err == nil && sa.UID != old.UID
	})
	k := i.kubectl(t)
	if out := k.run("get", "sa"); !strings.HasPrefix(strings.Join(strings.Fields(out), " "), "NAME AGE default ") {
		t.Errorf("table: %q", out)
	}
	defer i.control(t)()
	k.run("delete", "namespace", "new")
}

// account makes a service account, which is named after the test's purpose.
func account(t *testing.T, c kubernetes.Interface, name string) *corev1.ServiceAccount {
	t.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}, Secrets: []corev1.ObjectReference{{Name: "s", Namespace: "elsewhere"}}}
	sa, err := c.CoreV1().ServiceAccounts("default").Create(t.Context(), sa, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if sa.Secrets[0] != (corev1.ObjectReference{Name: "s"}) {
		t.Errorf("reference to a secret %+v, want its name alone", sa.Secrets[0])
	}
	return sa
}

func request(change func(r *authenticationv1.TokenRequestSpec)) *authenticationv1.TokenRequest {
	r := &authenticationv1.TokenRequest{}
	if change != nil {
		change(&r.Spec)
	}
	return r
}

func boundTo(kind, name string, uid types.UID) func(*authenticationv1.TokenRequestSpec) {
	return func(r *authenticationv1.TokenRequestSpec) {
		r.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kind, Name: name, UID: uid}
	}
}

func token(t *testing.T, c kubernetes.Interface, account string, change func(r *authenticationv1.TokenRequestSpec)) string {
	t.Helper()
	r, err := c.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), account, request(change), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Status.Token
}

// whoami is what the API server knows of the bearer of a token.
func whoami(t *testing.T, i *instance, token string) (authenticationv1.UserInfo, error) {
	t.Helper()
	r, err := i.client(t, withToken(i, token)).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return r.Status.UserInfo, nil
}

// bareNode and barePod are there to be bound to.
func bareNode(t *testing.T, c kubernetes.Interface, name string) *corev1.Node {
	t.Helper()
	n, err := c.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func barePod(t *testing.T, c kubernetes.Interface, name string, change func(*corev1.PodSpec)) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if change != nil {
		change(&p.Spec)
	}
	p, err := c.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTokens(t *testing.T) {
	cfg := newConfig(t)
	cfg.MaxTokenLife = 2 * time.Hour
	i := start(t, cfg)
	defer i.end(t)
	c, ctx := i.admin(t), t.Context()
	robot := account(t, c, "robot")
	node := bareNode(t, c, "n1")

	t.Run("of a service account alone", func(t *testing.T) {
		r, err := c.CoreV1().ServiceAccounts("default").CreateToken(ctx, "robot", request(nil), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		left := time.Until(r.Status.ExpirationTimestamp.Time)
		if left < 59*time.Minute || left > time.Hour || *r.Spec.ExpirationSeconds != 3600 || !slices.Equal(r.Spec.Audiences, []string{issuer}) || r.UID != robot.UID || r.Name != "robot" {
			t.Errorf("request %+v, ends in %v", r, left)
		}
		var claims struct {
			jwt.RegisteredClaims
			Kubernetes map[string]any `json:"kubernetes.io"`
		}
		if _, _, err := jwt.NewParser().ParseUnverified(r.Status.Token, &claims); err != nil {
			t.Fatal(err)
		}
		if claims.Issuer != issuer || claims.Subject != "system:serviceaccount:default:robot" || claims.ID == "" || len(claims.Kubernetes) != 2 || claims.Kubernetes["namespace"] != "default" {
			t.Errorf("claims %+v", claims)
		}
		who, err := whoami(t, i, r.Status.Token)
		if err != nil || who.Username != "system:serviceaccount:default:robot" || who.UID != string(robot.UID) ||
			!slices.Equal(who.Groups, []string{"system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"}) ||
			!slices.Equal(who.Extra["authentication.kubernetes.io/credential-id"], []string{"JTI=" + claims.ID}) {
			t.Errorf("its bearer is %+v, %v", who, err)
		}
	})
	t.Run("bound", func(t *testing.T) {
		pod := barePod(t, c, "bound", func(s *corev1.PodSpec) { s.ServiceAccountName, s.NodeName = "robot", "n1" })
		secret, err := c.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bound"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		spare := bareNode(t, c, "spare")
		zero := int64(0)
		now := metav1.DeleteOptions{GracePeriodSeconds: &zero}
		for _, tc := range []struct {
			kind  string
			uid   types.UID
			name  string
			extra map[string]string
			end   func() error
		}{
			{"Pod", pod.UID, "bound", map[string]string{"pod-name": "bound", "pod-uid": string(pod.UID), "node-name": "n1", "node-uid": string(node.UID)},
				func() error { return c.CoreV1().Pods("default").Delete(ctx, "bound", now) }},
			{"Secret", secret.UID, "bound", nil, func() error { return c.CoreV1().Secrets("default").Delete(ctx, "bound", now) }},
			{"Node", spare.UID, "spare", map[string]string{"node-name": "spare", "node-uid": string(spare.UID)}, func() error { return c.CoreV1().Nodes().Delete(ctx, "spare", now) }},
		} {
			bearer := token(t, c, "robot", boundTo(tc.kind, tc.name, tc.uid))
			who, err := whoami(t, i, bearer)
			if err != nil || len(who.Extra) != len(tc.extra)+1 {
				t.Errorf("bound to a %s: %+v, %v", tc.kind, who, err)
			}
			for key, want := range tc.extra {
				if got := who.Extra["authentication.kubernetes.io/"+key]; !slices.Equal(got, []string{want}) {
					t.Errorf("bound to a %s: %s is %q, want %q", tc.kind, key, got, want)
				}
			}
			if _, err := c.CoreV1().ServiceAccounts("default").CreateToken(ctx, "robot", request(boundTo(tc.kind, tc.name, "other")), metav1.CreateOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("bound to another %s of that name: %v, want a conflict", tc.kind, err)
			}
			if err := tc.end(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "a token bound to a "+tc.kind+" that is gone gets Unauthorized", func() bool {
				_, err := whoami(t, i, bearer)
				return apierrors.IsUnauthorized(err)
			})
			if _, err := c.CoreV1().ServiceAccounts("default").CreateToken(ctx, "robot", request(boundTo(tc.kind, tc.name, "")), metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("bound to a %s that is gone: %v, want NotFound", tc.kind, err)
			}
		}
	})
	t.Run("refused", func(t *testing.T) {
		barePod(t, c, "others", nil)
		seconds := func(n int64) func(*authenticationv1.TokenRequestSpec) {
			return func(r *authenticationv1.TokenRequestSpec) { r.ExpirationSeconds = &n }
		}
		for name, tc := range map[string]struct {
			change func(*authenticationv1.TokenRequestSpec)
			want   string
		}{
			"too short":     {seconds(599), "may not specify a duration less than 10 minutes"},
			"too long":      {seconds(1<<32 + 1), "may not specify a duration larger than 2^32 seconds"},
			"another's pod": {boundTo("Pod", "others", ""), `cannot bind token for serviceaccount "robot" to pod running with different serviceaccount name`},
			"a namespace":   {boundTo("Namespace", "default", ""), "cannot bind token to object of type /v1, Kind=Namespace"},
		} {
			if _, err := c.CoreV1().ServiceAccounts("default").CreateToken(ctx, "robot", request(tc.change), metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, want %q", name, err, tc.want)
			}
		}
		if _, err := c.CoreV1().ServiceAccounts("default").CreateToken(ctx, "nobody", request(nil), metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("of no service account: %v", err)
		}
		other := request(nil)
		other.UID = "other"
		if _, err := c.CoreV1().ServiceAccounts("default").CreateToken(ctx, "robot", other, metav1.CreateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("of another service account of that name: %v", err)
		}
		r, err := c.CoreV1().ServiceAccounts("default").CreateToken(ctx, "robot", request(seconds(1<<20)), metav1.CreateOptions{})
		if err != nil || *r.Spec.ExpirationSeconds != 7200 {
			t.Errorf("longer than the longest: %+v, %v; want it shortened to two hours", r, err)
		}
		for name, bad := range map[string]string{
			"for others":   token(t, c, "robot", func(r *authenticationv1.TokenRequestSpec) { r.Audiences = []string{"vault"} }),
			"tampered":     tamper(token(t, c, "robot", nil)),
			"unsigned":     unsigned(t),
			"of nobody":    "a.b.c",
			"of no format": "robot",
		} {
			if _, err := whoami(t, i, bad); !apierrors.IsUnauthorized(err) {
				t.Errorf("a token %s: %v, want Unauthorized", name, err)
			}
		}
	})
	t.Run("with kubectl", func(t *testing.T) {
		bearer := strings.TrimSpace(i.kubectl(t).run("create", "token", "robot", "--duration=10m", "--bound-object-kind=Node", "--bound-object-name=n1"))
		if who, err := whoami(t, i, bearer); err != nil || who.Extra["authentication.kubernetes.io/node-name"][0] != "n1" {
			t.Errorf("%+v, %v", who, err)
		}
	})
	t.Run("of a service account that is gone", func(t *testing.T) {
		account(t, c, "short")
		bearer := token(t, c, "short", nil)
		if _, err := whoami(t, i, bearer); err != nil {
			t.Fatal(err)
		}
		if err := c.CoreV1().ServiceAccounts("default").Delete(ctx, "short", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		account(t, c, "short") // another one
		eventually(t, "a token of a service account that is gone gets Unauthorized", func() bool {
			_, err := whoami(t, i, bearer)
			return apierrors.IsUnauthorized(err)
		})
	})
}

// tamper makes a token say something else than was signed.
func tamper(token string) string {
	parts := strings.Split(token, ".")
	return parts[0] + "." + parts[1][:len(parts[1])-8] + "AAAAAAAA" + "." + parts[2]
}

// unsigned is a token that nobody has signed (RFC 7519, section 6).
func unsigned(t *testing.T) string {
	t.Helper()
	all, err := jwt.NewWithClaims(jwt.SigningMethodNone, jwt.MapClaims{"iss": issuer, "aud": issuer, "sub": "system:serviceaccount:default:robot"}).
		SignedString(jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestTokenReviewAudiences(t *testing.T) {
	i := startWithTokens(t)
	defer i.end(t)
	c, ctx := i.admin(t), t.Context()
	account(t, c, "robot")
	vault := token(t, c, "robot", func(r *authenticationv1.TokenRequestSpec) { r.Audiences = []string{"vault", "bank"} })
	own := token(t, c, "robot", nil)
	for name, tc := range map[string]struct {
		token     string
		audiences []string
		want      []string // nil: not authenticated
	}{
		"for the API server":          {own, nil, []string{issuer}},
		"for it and another":          {own, []string{"vault", issuer}, []string{issuer}},
		"not for another":             {own, []string{"vault"}, nil},
		"for another":                 {vault, []string{"vault", "till"}, []string{"vault"}},
		"not for the API server":      {vault, nil, nil},
		"of the file":                 {"joes", nil, []string{issuer}},
		"of the file and for another": {"joes", []string{"vault"}, nil},
		"of nobody":                   {"guess", []string{"vault"}, nil},
	} {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: tc.token, Audiences: tc.audiences}}
		got, err := c.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil || got.Status.Authenticated != (tc.want != nil) || !slices.Equal(got.Status.Audiences, tc.want) || got.Spec.Token != "" {
			t.Errorf("%s: %+v, %v; want audiences %q", name, got, err, tc.want)
			continue
		}
		if tc.want == nil && got.Status.Error == "" {
			t.Errorf("%s: no reason is told", name)
		}
		if tc.want != nil && !slices.Contains(got.Status.User.Groups, "system:authenticated") {
			t.Errorf("%s: groups %q", name, got.Status.User.Groups)
		}
	}
}

// TestTokensOutliveRestarts: with the keys on the disk, and with an issuer that is not the first one any more.
func TestTokensOutliveRestarts(t *testing.T) {
	cfg := newConfig(t)
	i := start(t, cfg)
	account(t, i.admin(t), "robot")
	bearer := token(t, i.admin(t), "robot", nil)
	i.end(t)
	cfg.TokenIssuers = []string{"https://issuer.example.com", issuer}
	i = start(t, cfg)
	defer i.end(t)
	if _, err := whoami(t, i, bearer); err != nil {
		t.Errorf("an old token: %v", err)
	}
	if _, err := whoami(t, i, token(t, i.admin(t), "robot", nil)); err != nil {
		t.Errorf("a token of the new issuer: %v", err)
	}
	bad := newConfig(t)
	bad.TokenIssuers = []string{"http://issuer.example.com"}
	if s, err := apiserver.New(t.Context(), bad); err == nil || !strings.Contains(err.Error(), `issuer "http://issuer.example.com"`) {
		t.Errorf("an issuer without https: %v", err)
		if s != nil {
			s.Close()
		}
	}
}

func TestDiscoveryDocuments(t *testing.T) {
	i := start(t, newConfig(t))
	defer i.end(t)
	account(t, i.admin(t), "robot")
	bearer := token(t, i.admin(t), "robot", nil)
	cfg := withToken(i, bearer)
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: transport}
	get := func(url, tag string, into any) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if tag != "" {
			req.Header.Set("If-None-Match", tag)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, _ := io.ReadAll(resp.Body)
		if into != nil {
			if err := json.Unmarshal(raw, into); err != nil {
				t.Fatalf("%s: %v: %s", url, err, raw)
			}
		}
		return resp
	}
	var doc struct {
		Issuer string   `json:"issuer"`
		Keys   string   `json:"jwks_uri"`
		Algs   []string `json:"id_token_signing_alg_values_supported"`
	}
	resp := get(cfg.Host+"/.well-known/openid-configuration", "", &doc)
	if doc.Issuer != issuer || doc.Keys != cfg.Host+"/openid/v1/jwks" || !slices.Equal(doc.Algs, []string{"ES256"}) || resp.Header.Get("Cache-Control") != "public, max-age=3600" {
		t.Errorf("%+v, %v", doc, resp.Header)
	}
	var set struct {
		Keys []map[string]string `json:"keys"`
	}
	resp = get(doc.Keys, "", &set)
	parsed, _, err := jwt.NewParser().ParseUnverified(bearer, jwt.MapClaims{})
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Keys) != 1 || set.Keys[0]["kid"] != parsed.Header["kid"] || set.Keys[0]["kty"] != "EC" || resp.Header.Get("Content-Type") != "application/jwk-set+json" {
		t.Errorf("%+v, %v", set, resp.Header)
	}
	if again := get(doc.Keys, resp.Header.Get("ETag"), nil); again.StatusCode != http.StatusNotModified {
		t.Errorf("the same key set: %s", again.Status)
	}
}
