//! The attribute for functions that C programs call.
#![forbid(unsafe_code)]

use proc_macro::{Delimiter, Group, Ident, Punct, Spacing, Span, TokenStream, TokenTree};

/// Makes the body of a function the border between a C program and the library: no panic and no
/// cancellation of the thread passes it.
///
/// The argument names a function in the module `border` of the crate, which runs the body and says
/// what the program gets after a panic: `status`, an error number; `number`, -1; `pointer`, null;
/// `value`, 0; `nothing`, of a function without a result. In most crates that module is
/// `ferroce_abi::border`; the one of the DOCA libraries adds `code`, an error code.
///
/// ```ignore
/// #[border(status)]
/// pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
///     status("ibv_destroy_cq", destroy(cq, true))
/// }
/// ```
#[proc_macro_attribute]
pub fn border(after_panic: TokenStream, function: TokenStream) -> TokenStream {
    let mut tokens: Vec<TokenTree> = function.into_iter().collect();
    let body = match tokens.pop() {
        Some(TokenTree::Group(body)) if body.delimiter() == Delimiter::Brace => body,
        _ => return error("#[border] is for functions"),
    };
    // crate::border::AFTER_PANIC(move || BODY)
    let here = Span::call_site();
    let mut call = TokenStream::new();
    for word in ["crate", "border"] {
        call.extend([TokenTree::from(Ident::new(word, here))]);
        call.extend(colons());
    }
    call.extend(after_panic);
    let arguments = [
        Ident::new("move", here).into(),
        Punct::new('|', Spacing::Joint).into(),
        Punct::new('|', Spacing::Alone).into(),
        TokenTree::Group(body),
    ];
    let arguments = Group::new(Delimiter::Parenthesis, arguments.into_iter().collect());
    call.extend([TokenTree::Group(arguments)]);
    tokens.push(Group::new(Delimiter::Brace, call).into());
    tokens.into_iter().collect()
}

fn error(text: &str) -> TokenStream {
    let text = format!("compile_error! {{ {text:?} }}");
    text.parse().unwrap_or_default()
}

fn colons() -> [TokenTree; 2] {
    [
        Punct::new(':', Spacing::Joint).into(),
        Punct::new(':', Spacing::Alone).into(),
    ]
}
