//! Switches, lowered to chains of `if`s.

use super::analysis::{Exit, ends, exits_at_ends};
use super::statement::{Item, items};
use super::{Lower, Scope};
use crate::fault::Result;
use naga::{Expression, Handle, Statement, SwitchCase, SwitchValue};
use vyre_foundation::ir::{Expr, Node};

/// Cases that share a body.
struct Arm<'m> {
    values: Vec<SwitchValue>,
    body: Vec<Item<'m>>,
}

impl<'m> Lower<'m> {
    pub(super) fn switch(&mut self, selector: Handle<Expression>, cases: &'m [SwitchCase]) -> Result<()> {
        let selector = self.leaf(selector)?;
        let selector = self.shared(selector)?;
        self.settle_all()?;
        let arms = arms(cases);
        let at_ends = cases.iter().all(|case| !case.fall_through || case.body.is_empty())
            && cases.iter().all(|case| exits_at_ends(&case.body, Exit::Break));
        if at_ends {
            self.scopes.push(Scope::Switch);
            let chained = self.chain(&selector, &arms);
            self.scopes.pop();
            return chained;
        }
        let continues = cases.iter().any(|case| has_continue(&case.body));
        let again = self.fresh("again");
        if continues {
            self.emit(Node::let_(again.clone(), Expr::bool(false)))?;
        }
        self.again.push(again.clone());
        self.scopes.push(Scope::SwitchOnce);
        let chained = self.once(|lower| lower.chain(&selector, &arms));
        self.scopes.pop();
        self.again.pop();
        chained?;
        self.after_loop(&cases.iter().map(|case| &case.body).collect::<Vec<_>>())?;
        if continues {
            let go_on = self.nested(Self::continue_)?;
            self.code.choose(Expr::Var(again), go_on, Default::default(), self.here);
        }
        Ok(())
    }

    fn chain(&mut self, selector: &Expr, arms: &[Arm<'m>]) -> Result<()> {
        let at = self.here;
        let is_default = |arm: &&Arm<'m>| arm.values.contains(&SwitchValue::Default);
        let mut code = match arms.iter().find(is_default) {
            Some(arm) => self.nested(|lower| lower.list(&arm.body))?,
            None => Default::default(),
        };
        for arm in arms.iter().rev().filter(|arm| !is_default(arm)) {
            let is_this = arm.values.iter().filter_map(|value| match value {
                SwitchValue::I32(value) => Some(selector.clone().equals(Expr::i32(*value))),
                SwitchValue::U32(value) => Some(selector.clone().equals(Expr::u32(*value))),
                SwitchValue::Default => None,
            });
            let Some(condition) = is_this.reduce(|any, this| any | this) else { continue };
            let body = self.nested(|lower| lower.list(&arm.body))?;
            let otherwise = std::mem::take(&mut code);
            code.choose(condition, body, otherwise, at);
            self.spend(1)?;
        }
        self.here = at;
        self.code.append(code);
        Ok(())
    }
}

/// The bodies, each with its cases; one that falls through continues with the next.
fn arms(cases: &[SwitchCase]) -> Vec<Arm<'_>> {
    let mut arms = Vec::new();
    let mut values = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        values.push(case.value);
        if case.fall_through && case.body.is_empty() {
            continue;
        }
        let mut body = Vec::new();
        for follower in &cases[index..] {
            body.extend(items(&follower.body));
            if !follower.fall_through || ends(&follower.body) {
                break;
            }
        }
        // A `break` at the end of a case is redundant.
        if let Some((Statement::Break, _)) = body.last() {
            body.pop();
        }
        arms.push(Arm { values: std::mem::take(&mut values), body });
    }
    arms
}

fn has_continue(statements: &[Statement]) -> bool {
    statements.iter().any(|statement| match statement {
        Statement::Continue => true,
        Statement::Block(block) => has_continue(block),
        Statement::If { accept, reject, .. } => has_continue(accept) || has_continue(reject),
        Statement::Switch { cases, .. } => cases.iter().any(|case| has_continue(&case.body)),
        _ => false,
    })
}
