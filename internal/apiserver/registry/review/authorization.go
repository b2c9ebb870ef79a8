package review

import (
	"context"
	"errors"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/resource"
)

// Authorizer decides, and tells the rules by which it does.
type Authorizer interface {
	authorizer.Authorizer
	authorizer.RuleResolver
}

// Authorization are the resources of authorization.k8s.io/v1.
func Authorization(authz Authorizer) []resource.Resource {
	return resources(authorizationv1.SchemeGroupVersion, map[string]rest.Storage{
		"subjectaccessreviews": storage(kind[authorizationv1.SubjectAccessReview]{
			singular: "SubjectAccessReview",
			answer: func(ctx context.Context, review *authorizationv1.SubjectAccessReview) error {
				if errs := validateSubject(&review.Spec); len(errs) > 0 {
					return apierrors.NewInvalid(authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview").GroupKind(), "", errs)
				}
				review.Status = decide(ctx, authz, subject(&review.Spec), review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
				return nil
			},
		}),
		"localsubjectaccessreviews": storage(kind[authorizationv1.LocalSubjectAccessReview]{
			singular: "LocalSubjectAccessReview", namespaced: true,
			answer: func(ctx context.Context, review *authorizationv1.LocalSubjectAccessReview) error {
				errs := validateSubject(&review.Spec)
				if r := review.Spec.ResourceAttributes; r == nil || r.Namespace != genericrequest.NamespaceValue(ctx) {
					errs = append(errs, field.Required(field.NewPath("spec", "resourceAttributes", "namespace"), "must be the namespace of the request"))
				}
				if len(errs) > 0 {
					return apierrors.NewInvalid(authorizationv1.SchemeGroupVersion.WithKind("LocalSubjectAccessReview").GroupKind(), "", errs)
				}
				review.Status = decide(ctx, authz, subject(&review.Spec), review.Spec.ResourceAttributes, nil)
				return nil
			},
		}),
		"selfsubjectaccessreviews": storage(kind[authorizationv1.SelfSubjectAccessReview]{
			singular: "SelfSubjectAccessReview",
			answer: func(ctx context.Context, review *authorizationv1.SelfSubjectAccessReview) error {
				caller, ok := genericrequest.UserFrom(ctx)
				if !ok {
					return apierrors.NewInternalError(errors.New("the request has no user"))
				}
				if errs := validateAttributes(review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes); len(errs) > 0 {
					return apierrors.NewInvalid(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview").GroupKind(), "", errs)
				}
				review.Status = decide(ctx, authz, caller, review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
				return nil
			},
		}),
		"selfsubjectrulesreviews": storage(kind[authorizationv1.SelfSubjectRulesReview]{
			singular: "SelfSubjectRulesReview",
			answer: func(ctx context.Context, review *authorizationv1.SelfSubjectRulesReview) error {
				caller, ok := genericrequest.UserFrom(ctx)
				if !ok {
					return apierrors.NewInternalError(errors.New("the request has no user"))
				}
				if review.Spec.Namespace == "" {
					return apierrors.NewBadRequest("spec.namespace of the SelfSubjectRulesReview is empty: it must be the namespace whose rules are asked for")
				}
				review.Status = rules(ctx, authz, caller, review.Spec.Namespace)
				return nil
			},
		}),
	})
}

// rules asks for all that somebody may in a namespace.
func rules(ctx context.Context, authz authorizer.RuleResolver, who user.Info, namespace string) authorizationv1.SubjectRulesReviewStatus {
	resources, paths, incomplete, err := authz.RulesFor(ctx, who, namespace)
	status := authorizationv1.SubjectRulesReviewStatus{
		ResourceRules:    make([]authorizationv1.ResourceRule, 0, len(resources)),
		NonResourceRules: make([]authorizationv1.NonResourceRule, 0, len(paths)),
		Incomplete:       incomplete,
	}
	for _, r := range resources {
		status.ResourceRules = append(status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: r.GetVerbs(), APIGroups: r.GetAPIGroups(), Resources: r.GetResources(), ResourceNames: r.GetResourceNames(),
		})
	}
	for _, r := range paths {
		status.NonResourceRules = append(status.NonResourceRules, authorizationv1.NonResourceRule{Verbs: r.GetVerbs(), NonResourceURLs: r.GetNonResourceURLs()})
	}
	if err != nil {
		status.EvaluationError = err.Error()
	}
	return status
}

func validateSubject(spec *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := validateAttributes(spec.ResourceAttributes, spec.NonResourceAttributes)
	if spec.User == "" && len(spec.Groups) == 0 {
		errs = append(errs, field.Required(field.NewPath("spec", "user"), "at least one of `user` and `groups` must be given"))
	}
	return errs
}

func validateAttributes(r *authorizationv1.ResourceAttributes, n *authorizationv1.NonResourceAttributes) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if (r == nil) == (n == nil) {
		errs = append(errs, field.Required(spec, "exactly one of `resourceAttributes` and `nonResourceAttributes` must be given"))
	}
	if r != nil {
		errs = append(errs, validateSelectors(r, spec.Child("resourceAttributes"))...)
	}
	return errs
}

func subject(spec *authorizationv1.SubjectAccessReviewSpec) user.Info {
	u := &user.DefaultInfo{Name: spec.User, UID: spec.UID, Groups: spec.Groups, Extra: map[string][]string{}}
	for key, values := range spec.Extra {
		u.Extra[key] = values
	}
	return u
}

// decide asks the authorizer. What it cannot decide is not allowed.
func decide(ctx context.Context, authz authorizer.Authorizer, who user.Info,
	r *authorizationv1.ResourceAttributes, n *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	attributes := authorizer.AttributesRecord{User: who}
	if r != nil {
		attributes.ResourceRequest = true
		attributes.Verb, attributes.Namespace, attributes.Name = r.Verb, r.Namespace, r.Name
		attributes.APIGroup, attributes.APIVersion = r.Group, r.Version
		attributes.Resource, attributes.Subresource = r.Resource, r.Subresource
		addSelectors(&attributes, r)
	} else {
		attributes.Verb, attributes.Path = n.Verb, n.Path
	}
	decision, reason, err := authz.Authorize(ctx, attributes)
	status := authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authorizer.DecisionAllow,
		Denied:  decision == authorizer.DecisionDeny,
		Reason:  reason,
	}
	wrong := unread(&attributes)
	if err != nil {
		wrong = append([]string{err.Error()}, wrong...)
	}
	status.EvaluationError = strings.Join(wrong, "; ")
	return status
}
