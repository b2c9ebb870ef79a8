package serviceaccount

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"

	"monopod.dev/monopod/internal/apiserver/tokens"
)

// TokenConfig says how tokens are made.
type TokenConfig struct {
	Issuer Issuer
	// Audiences are those of a token that was asked for without any: the API server's own.
	Audiences []string
	// MaxLife is how long a token is good for at most; 0: as long as was asked for.
	MaxLife time.Duration
	// Bound reads what tokens can be bound to.
	Bound Bound
}

// Issuer makes tokens.
type Issuer interface {
	Issue(s tokens.Subject, audiences []string, from time.Time, life time.Duration) (token, credentialID string, err error)
}

// Bound reads the objects that tokens can be bound to, fresh ones as they are in the store. What is not there is a NotFound of the API.
type Bound interface {
	Pod(ctx context.Context, namespace, name string, fresh bool) (*corev1.Pod, error)
	Secret(ctx context.Context, namespace, name string, fresh bool) (*corev1.Secret, error)
	Node(ctx context.Context, name string, fresh bool) (*corev1.Node, error)
}

// tokenREST is the storage of serviceaccounts/token: a TokenRequest that is created comes back with a token.
type tokenREST struct {
	TokenConfig
	accounts rest.Getter
}

var (
	_ rest.NamedCreater                   = &tokenREST{}
	_ rest.GroupVersionKindProvider       = &tokenREST{}
	_ rest.SubresourceObjectMetaPreserver = &tokenREST{}
)

var requestKind = authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")

// New implements rest.Storage.
func (*tokenREST) New() runtime.Object { return &authenticationv1.TokenRequest{} }

// Destroy implements rest.Storage. The resource destroys the store.
func (*tokenREST) Destroy() {}

// GroupVersionKind implements rest.GroupVersionKindProvider: the request is of another group than the service account.
func (*tokenREST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind { return requestKind }

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate implements rest.SubresourceObjectMetaPreserver: the request's UID is that of the service account
// for which the client wants the token.
func (*tokenREST) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return true }

// Create implements rest.NamedCreater.
func (t *tokenREST) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	req, ok := obj.(*authenticationv1.TokenRequest)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected a TokenRequest, found %T", obj))
	}
	namespace := genericrequest.NamespaceValue(ctx)
	found, err := t.accounts.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	account, ok := found.(*corev1.ServiceAccount)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("service account %s/%s: the store holds a %T", namespace, name, found))
	}
	now := time.Now()
	if err := t.complete(req, account, now); err != nil {
		return nil, err
	}
	if validate != nil {
		if err := validate(ctx, req.DeepCopy()); err != nil {
			return nil, err
		}
	}
	subject := tokens.Subject{Namespace: namespace, Account: tokens.Ref{Name: account.Name, UID: account.UID}}
	if req.Spec.BoundObjectRef != nil {
		if err := t.bind(ctx, &subject, req.Spec.BoundObjectRef); err != nil {
			return nil, err
		}
	}
	t.shorten(ctx, req)
	life := time.Duration(*req.Spec.ExpirationSeconds) * time.Second
	token, credential, err := t.Issuer.Issue(subject, req.Spec.Audiences, now, life)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("make a token of service account %s/%s: %w", namespace, name, err))
	}
	audit.AddAuditAnnotation(ctx, serviceaccount.IssuedCredentialIDAuditAnnotationKey, credential)
	req.Status = authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.NewTime(now.Add(life))}
	return req, nil
}

// complete fills in what a request may leave out, and refuses one that is about another object or asks for what is not given.
func (t *tokenREST) complete(req *authenticationv1.TokenRequest, account *corev1.ServiceAccount, now time.Time) error {
	var errs field.ErrorList
	meta := field.NewPath("metadata")
	if req.Name != "" && req.Name != account.Name {
		errs = append(errs, field.Invalid(meta.Child("name"), req.Name, "must match the service account name if specified"))
	}
	if req.Namespace != "" && req.Namespace != account.Namespace {
		errs = append(errs, field.Invalid(meta.Child("namespace"), req.Namespace, "must match the service account namespace if specified"))
	}
	if req.UID != "" && req.UID != account.UID {
		return apierrors.NewConflict(schema.GroupResource{Group: requestKind.Group, Resource: requestKind.Kind}, account.Name,
			fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)", req.UID, account.UID))
	}
	if errs = append(errs, validateRequest(&req.Spec)...); len(errs) > 0 {
		return apierrors.NewInvalid(requestKind.GroupKind(), account.Name, errs)
	}
	req.Name, req.Namespace, req.UID, req.CreationTimestamp = account.Name, account.Namespace, account.UID, metav1.NewTime(now)
	if len(req.Spec.Audiences) == 0 {
		req.Spec.Audiences = t.Audiences
	}
	req.Status = authenticationv1.TokenRequestStatus{}
	return nil
}

// Bounds of a token's life in seconds. The longer one is that of Kubernetes' field.
const (
	minTokenSeconds = 10 * 60
	maxTokenSeconds = 1 << 32
)

func validateRequest(spec *authenticationv1.TokenRequestSpec) (errs field.ErrorList) {
	path := field.NewPath("spec")
	seconds := path.Child("expirationSeconds")
	switch s := spec.ExpirationSeconds; {
	case s == nil:
		errs = append(errs, field.Required(seconds, ""))
	case *s < minTokenSeconds:
		errs = append(errs, field.Invalid(seconds, *s, "may not specify a duration less than 10 minutes"))
	case *s > maxTokenSeconds:
		errs = append(errs, field.Invalid(seconds, *s, "may not specify a duration larger than 2^32 seconds"))
	}
	if len(spec.Attestations) > 0 {
		errs = append(errs, field.Forbidden(path.Child("attestations"), "must not be set: there are no webhooks to attest anything to"))
	}
	return errs
}

// shorten keeps a request within the longest life that tokens have here, and tells the client.
func (t *tokenREST) shorten(ctx context.Context, req *authenticationv1.TokenRequest) {
	longest := int64(t.MaxLife / time.Second)
	if longest <= 0 || *req.Spec.ExpirationSeconds <= longest {
		return
	}
	warning.AddWarning(ctx, "", fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", *req.Spec.ExpirationSeconds, longest))
	req.Spec.ExpirationSeconds = &longest
}

// bind finds what the token is to be bound to, which must be there.
func (t *tokenREST) bind(ctx context.Context, s *tokens.Subject, ref *authenticationv1.BoundObjectReference) error {
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	var uid types.UID
	switch {
	case kind.Group == corev1.GroupName && kind.Kind == "Pod":
		pod, err := t.Bound.Pod(ctx, s.Namespace, ref.Name, true)
		if err != nil {
			return err
		}
		if pod.Spec.ServiceAccountName != s.Account.Name {
			return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", s.Account.Name))
		}
		uid, s.Pod = pod.UID, &tokens.Ref{Name: pod.Name, UID: pod.UID}
		if s.Node, err = t.nodeOf(ctx, pod); err != nil {
			return err
		}
	case kind.Group == corev1.GroupName && kind.Kind == "Secret":
		secret, err := t.Bound.Secret(ctx, s.Namespace, ref.Name, true)
		if err != nil {
			return err
		}
		uid, s.Secret = secret.UID, &tokens.Ref{Name: secret.Name, UID: secret.UID}
	case kind.Group == corev1.GroupName && kind.Kind == "Node":
		node, err := t.Bound.Node(ctx, ref.Name, true)
		if err != nil {
			return err
		}
		uid, s.Node = node.UID, &tokens.Ref{Name: node.Name, UID: node.UID}
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s", kind))
	}
	if ref.UID != "" && ref.UID != uid {
		return apierrors.NewConflict(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, ref.Name,
			fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID))
	}
	return nil
}

// nodeOf is the node that a pod runs on: its name alone where the node itself is gone, nil where it has none.
func (t *tokenREST) nodeOf(ctx context.Context, pod *corev1.Pod) (*tokens.Ref, error) {
	if pod.Spec.NodeName == "" {
		return nil, nil // a pod that has no node yet
	}
	node, err := t.Bound.Node(ctx, pod.Spec.NodeName, false)
	switch {
	case apierrors.IsNotFound(err):
		return &tokens.Ref{Name: pod.Spec.NodeName}, nil
	case err != nil:
		return nil, apierrors.NewInternalError(err)
	}
	return &tokens.Ref{Name: node.Name, UID: node.UID}, nil
}
